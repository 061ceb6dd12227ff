"""The figures of a store as metrics: what `store.metrics()` and its hooks say.

Begin with `catalogue`: a row for each metric. Nothing here knows a lane or a file.

    what there is       family, catalogue, named
    as text             text
"""
