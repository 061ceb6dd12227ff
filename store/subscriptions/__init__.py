"""Subscriptions: durable cursors over all queues of a topic.

Begin with `subscription`, the object that a user holds, and `state`, which its parts share and which knows none of
them. `registry` has all subscriptions of a store. A `receive` goes through `subscription`, `receiving` and
`dispatcher`, which asks `redelivery`, `lines`, `delays` and `scanner` in this order, and puts the messages into the
table `in_flight`. An `ack` goes through `acknowledging`, `group_commit` and `journal`: its record is a message of a
hidden stream, and is appended like any other message. Once it is durable, `cursor` counts the message.

A subscription of several topics is `topics_subscription`: one object over a subscription of each topic, its `members`.

    giving out          receiving, queue_receiving, dispatcher, scanner, read_ahead, delivery
    what is given out   in_flight, removed_receipts, stories
    what is too old     expiring
    whose turn          news, calling
    which, what order   settings, changing, ordering, lines
    again, and later    redelivery, backoff, moving, origin, attempts, used_up, delays, place_list
    acknowledging       acknowledging, group_commit, ack_row, joint_acks, joint_ids, committing
    what objects share  shared
    what is durable     cursor, journal
    how far it is       info, backlog, positions, progress, removed, removed_rows, life_counts, told_counts, inspecting
    for metrics         watched
    as an iterator      iterating
    several topics      topics_subscription, topics_opening, topics_start, topics_receiving, topics_acks
    one of them each    members, receipt_topics, wake_times
    its surroundings    parts
"""
