"""The public face: opening, appending, reading, closing.

Begin with `store_reader`: `StoreReader` opens and closes, over `running` and `shared`. `store` has `MessageStore`, one
that writes, over `lanes`. Their base classes (`.._calls`) have the calls that a user sees, with their promises.
Each passes them on to a part that does the work. A lane and its flusher call hooks (`on_durable`, `on_full` ..):
`lanes` sets them, and most are methods of `running` and of `log.upkeep`.

    appending           append_calls, appender, checks, partitioner, batches, batch_ticket, leaving
    with message ids    identified, id_batch, repeats
    transactions        transaction
    columns             column_calls, columns, column_checks, stream_table, arrow
    reading             read_calls, fetcher
    for coroutines      async_calls
    removing            trim_calls, trimming
    settings of topics  topic_calls, aging
    subscribers         subscription_list, subscription_calls, delayed_calls, redriving
    bulk commits        shard_calls, shard_writer, commits
    an open store       shared, running, lanes, lifetime, stats, figures
    metrics             named_figures, metering, watching

Functions for stores that are closed, or open elsewhere:

    reading             read_only, looking, beside, scan_plans
    changing            compacting, rebuilding, replacing
"""
