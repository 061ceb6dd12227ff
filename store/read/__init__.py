"""Reading: finding, fetching, scanning, waiting, and feeding the message cache.

Begin with `reader`, and with `finder` and `sources`, over which it reads: where messages lie, and who has their bytes.
The quicker ways take what is usual, and leave the rest to it:

    `get_range`         lane_places, long_messages, named_rows, lane_tables, making_places, straight, parts
    `read_batch`        recent, bulk, few, frame_times
    many queues         picking
    results             message, columns, details, tables
    everything, times   scan, wanted, times
    waiting             waiting, async_reads
    caches              caches, cached, feeder, feed
"""
