"""Checking a closed store without changing it.

Begin with `folder`, which checks all of a store, and `lane`.

    one segment         frames, footer
    the whole lane      listing, marks, refusal
    what was found      report
    describing it       inspect
"""
