"""Settings of topics, kept in the store: how many queues a topic has.

Begin with `table`: the settings of all topics.

    what may be set     settings
"""
