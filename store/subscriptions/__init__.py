"""Subscriptions: durable cursors over all queues of a topic.

Begin with `subscription`, what a user holds, and `state`, what its consumers share. `registry` has all of a store's.

    giving out          dispatcher, scanner, read_ahead, delivery, in_flight, giving_out
    whose turn          news, looking, calling
    which, what order   settings, filters, ordering, lines, names
    again, and later    redelivery, left_behind, delays
    acknowledging       acked, pending_acks, group_commit
    what is durable     cursor, journal
    more                backlog, for_coroutines
    its surroundings    parts
"""
