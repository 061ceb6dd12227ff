"""Subscriptions: durable cursors over all queues of a topic.

Begin with `subscription`, what a user holds, and `state`, what its consumers share. `registry` has all of a store's.

    giving out          dispatcher, scanner, fetching, taking, room, delivery, in_flight
    which, what order   settings, filters, ordering, starting
    again, and later    again, attempts, tries, dead_letters, delays, place_list
    acknowledging       acked, acking, group_commit, gathering, on_way
    what is durable     cursor, journal
    waiting, counting   waits, backlog
    its surroundings    parts, arguments
"""
