"""Subscriptions: durable cursors over all queues of a topic.

Begin with `subscription`, what a user holds, and `state`, what its consumers share. `registry` has all of a store's.

    giving out          dispatcher, scanner, chunk, fetching, taking, room, delivery, in_flight, removed
    given and gone      giving_out, forgetting
    whose turn          ready, news, read_ahead
    which, what order   settings, filters, ordering, lines, starting, chains, names
    again, and later    again, attempts, tries, left_behind, dead_letters, delays, place_list, bad_copies
    acknowledging       acked, acking, group_commit, gathering, on_way
    what is durable     cursor, journal, unfinished
    waiting, counting   waits, calling, looking, backlog
    more calls          for_coroutines
    its surroundings    parts, arguments
"""
