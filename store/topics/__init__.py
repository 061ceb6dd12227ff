"""Settings of topics, kept in the store: how many queues a topic has, and what keeps its messages.

Begin with `table`: the settings of all topics.

    what may be set     settings
    topics at their cap full
    an age of its own   aging, known_ages, ttl
"""
