"""Appending: requests, batches, lanes, flushers, and the work in the background.

Begin with `lane_machine`: one append log as a state machine, with four steps for each frame. `flusher` is the thread
that makes them. A message goes through `request`, `queue`, `flusher`, `lane_machine`, `row_build`, `written_lane`,
`write` and `writes`, in this order. Two words mean one thing: `queue` says *builder* for a flusher. `api.lanes` gives a
lane and its flusher their hooks.

A lane is three classes, each the base of the next: `Lane`, which readers and streams know; `WrittenLane`, which this
process appends to; `LaneMachine` with the steps.

    on the way to it    request, ticket, column_group, atomic_group, joint_group, queue, sizer, listeners
    a lane              lane, written_lane, lane_machine
    making a frame      batch, row_build, column_build, offsets, room, alignment
    writing it          write, writes, write_times
    after an opening    adoption, sealed_log
    threads             flusher, rounds, round_part, crew
    the background      upkeep, spares, ahead, reserve, sealer, removal, retention, early, retention_rounds
    its pace            pace, ring_growth
    streams             streams, hidden_streams, trims, gone
    message ids         message_ids, frame_ids
    beside the queue    at_once, together, attach_together, stopping
"""
