"""Plans of bulk reads: a store up to one fixed end, cut into parts that any process reads by itself.

Begin with `planning`, and then `reading`, which reads one part.

    planning            planning, plan, limits
    reading a part      reading, opened, chunks, places, batch
"""
