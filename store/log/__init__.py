"""Appending: requests, batches, lanes, flushers, and the work in the background.

Begin with `lane`: one append log as a state machine, with four steps for each frame. `flusher` is the thread that
makes them. A message goes through `request`, `queue`, `flusher`, `lane`, `write` and `writes`, in this order. Two
words mean one thing: `queue` says *builder* for a flusher. `api.lanes` gives a lane and its flusher their hooks.

    on the way to it    request, ticket, column_group, queue, sizer, listeners
    making a frame      batch, row_build, column_build, offsets, room, alignment
    writing it          write, writes
    after an opening    adoption, sealed_log
    threads             flusher
    the background      upkeep, spares, reserve, sealer, removal, retention, early, retention_rounds, pace, ring_growth
    streams             streams, hidden_streams, trims, gone
    beside the queue    at_once, together, stopping
"""
