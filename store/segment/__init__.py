"""One segment: its index while it is open, its footer once it is sealed, and how it is scanned.

Begin with `segment`: the file, and the ways to get a message's bytes from it. A message is found by its *entry*, its
number in the segment: in `open_table` while the segment takes frames, and in `sealed` by the footer. Both give *places*
(position, length, checksum), mostly as a flat table: the places of entry n are at 3 n, 3 n + 1 and 3 n + 2.

    while it is open    writer, zeros, open_table, postings, footer_room
    once it is sealed   sealing, names, sealed, index, part, newest
    of many             sealed_segments, groups, present, borders
    memory, read-ahead  held, windows, copies
    files of a lane     files, begun
    front to back       scanner, checksums
    frames by place     placed_frames, frame_heads
    damage              evidence, remade
    the end of a log    round_parts
"""
