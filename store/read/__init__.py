"""Reading: finding, fetching, scanning, waiting, and feeding the message cache.

Begin with `reader`: its class says which ways a call tries, in order. The last one of each call is *the long way*, over
`finder` (where messages lie, in runs) and `sources` (the places that may have their bytes). It alone raises errors. The
ways before it are shortcuts for messages that are whole and in their places: they answer None for all else.

Where messages lie is told by `lane_places` (a table of a lane), `parts` (segment by segment, without objects), `finder`
(runs) and `picking` (many queues at once). Bytes come from the ring, a mapping, a kept window or a system call:
`segment.segment` has the latter three.

    `get_range`         lane_places, long_messages, named_rows, lane_tables, making_places, straight, parts
    `read_batch`        recent, bulk, few, frame_times
    many queues         picking
    results             message, columns, details, tables
    everything, times   scan, wanted, times
    waiting             waiting, async_reads
    caches              caches, cached, feeder, feed
"""
