"""Makes the lost footers and delayed indexes of a closed store again from its frames, in parts for any process.

Begin with `looking`, the first pass over a lane; after the second one, its footers are whole.

    between the passes  placing
    the second pass     footers
    delayed messages    delays
"""
