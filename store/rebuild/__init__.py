"""What a closed store can do without, made again of its frames, in parts that any process works on by itself.

Begin with `looking`, the first pass over a lane; behind the second one, its footers are whole.

    between the passes  placing
    the second pass     footers
    delayed messages    delays
"""
