"""Reading: finding, fetching, scanning, waiting, and feeding the message cache.

Begin with `reader`: its class says which ways a call tries, in order. The last one of each call is *the long way*, over
`finder` (where messages lie, in parts) and `log_bytes` (the bytes of parts). It alone raises errors. The ways before it
are shortcuts for messages that are whole and in their places: they answer None for all else.

Where messages lie is told by `lane_places` (a table of a lane), `finder` (segment by segment) and `picking` (many
queues at once). Bytes come from the ring, a mapping, a kept window or a system call: `segment.segment` has the latter
three.

    finding, fetching   finder, log_bytes, read_counters
    the table           lane_places, long_messages, named_rows, lane_tables, making_places
    `read_batch`        recent, bulk
    many queues         picking
    results             message, columns, details, frame_times, tables
    everything, times   scan, wanted, times
    waiting             waiting, async_reads, loop_bells, topic_news
    caches              caches, cached, feeder, feed
"""
