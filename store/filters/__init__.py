"""Filters by properties and key: a mapping of wanted values, or a condition in SQL.

Begin with `message_filter`: it says which messages of a batch pass. It knows nothing of topics or subscriptions.

    from a user's argument to a condition   given, parser, tokens, conditions
    over the columns of a batch             message_filter, texts
"""
