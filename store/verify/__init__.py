"""Checks a closed store without changing it.

Begin with `folder`, which checks all of a store, and `lane`.

    one segment         frames, footer
    the whole lane      listing, marks, refusal
    bulk commits        waiting
    findings            report
    describing it       inspect, described
"""
