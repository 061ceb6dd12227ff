"""Appending: requests, batches, lanes, flushers, and what goes on in the background.

Begin with `lane`: one append log as a state machine. The others stand around it:

    on the way to it    request, ticket, column_group, queue, sizer, listeners
    making a frame      batch, column_build, offsets, alignment
    writing it          write, in_flight
    threads             flusher
    the background      upkeep, spares, sealer, removal, retention, laps, ring_growth
    streams             streams, hidden_streams, trims
    beside the queue    at_once, quiet
"""
