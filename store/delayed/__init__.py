"""Delayed delivery in the store: an index a topic, shared by its subscriptions (R31 to R35).

Begin with `topic`: the delayed messages of one topic. `delays` has all topics, and the thread.

    from the log        walk, positions, opening, told, given_out
    to consumers        due_list, pointer, messages, skipping
    changes             decisions, changes, trimmed
    retention           keeping, copies
    counting            counting, reckoning, figures
    deleted topics      forgotten
    its sizes           memory, precision
    its surroundings    parts, disk_files, subscribers
"""
