"""What the store knows of topics: their settings, which are kept in it, and the ids of their newest messages.

Begin with `table`: the settings of all topics; or with `id_windows`: their message ids.

    what may be set     settings
    topics at their cap full
    an age of its own   aging, known_ages, ttl
    message ids         id_windows, id_window, durable_ids
"""
