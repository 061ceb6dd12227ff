"""Delayed delivery in the store: one index for each topic, shared by its subscriptions (R31 to R35).

Begin with `topic`: the delayed messages of one topic, over its `topic_index`. `delays` has all topics, and the work of
the thread.

    from the log        due_scan, opening
    the index           topic_index, absent
    to consumers        due_list, messages
    changes             decisions, changes
    the thread          worker
    retention           keeping, wanted, copies
    work queues         work_queues, changed_topics
    counting            counting
    its surroundings    parts
"""
