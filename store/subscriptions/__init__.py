"""Subscriptions: durable cursors over all queues of a topic.

Begin with `subscription`, the object that a user holds, and `state`, which all consumers of a name share. `registry`
has all subscriptions of a store. A `receive` goes through `subscription`, `looking`, `dispatcher`, which asks
`redelivery`, `lines`, `delays` and `scanner` in this order, and `giving_out`, which puts the messages into the table
`in_flight`. An `ack` goes through `state`, `group_commit` and `journal`: its record is a message of a hidden stream,
and is appended like any other message.

    giving out          dispatcher, scanner, read_ahead, delivery, in_flight, giving_out
    whose turn          news, looking, calling
    which, what order   settings, filters, ordering, lines, names
    again, and later    redelivery, left_behind, delays
    acknowledging       acked, pending_acks, group_commit
    what is durable     cursor, journal
    more                backlog, for_coroutines
    its surroundings    parts
"""
