"""The live messages of closed lanes, written anew to fewer and larger segments, with the offsets that they have.

Begin with `plan`: what stays of a lane, and in which parts it is written. `api.compacting` puts the new lane in place.

    a part's messages   live, writing
    the new lane        joining
"""
