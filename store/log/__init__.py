"""Appending: requests, batches, lanes, flushers, and what goes on in the background.

Begin with `lane`: one append log as a state machine. The others stand around it:

    on the way to it    request, ticket, column_group, queue, sizer, listeners
    making a frame      batch, column_build, offsets, room, alignment
    writing it          write, in_flight
    after an opening    adoption
    threads             flusher
    the background      upkeep, spares, reserve, sealer, removal, retention, early, laps, pace, ring_growth
    streams             streams, hidden_streams, trims, gone
    beside the queue    at_once, together, quiet
"""
