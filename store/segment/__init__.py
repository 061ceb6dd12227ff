"""One segment: its index while it is open, its footer once it is sealed, and how it is scanned.

Begin with `segment`: the file, and where a message's bytes are fetched. Then:

    while it is open    open_table, postings, footer_room
    once it is sealed   sealing, names, sealed, index, head, kept, run, newest
    of many             groups, present, guess, firsts
    memory, read-ahead  held, windows, copies
    front to back       scanner, begun
    frames by place     frame_heads
    damage              evidence, remade
"""
