"""Writes the live messages of closed lanes again, to fewer and larger segments, with their old offsets.

Begin with `plan`: which messages of a lane stay, and in which parts they are written. `api.compacting` puts the new
lane in place.

    a part's messages   live, writing
    the new lane        joining
"""
