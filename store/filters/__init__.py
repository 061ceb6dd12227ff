"""Filters by properties and key: a mapping of wanted values, or a condition in SQL.

Begin with `message_filter`: it says which messages of a batch pass. Nothing here knows topics or subscriptions.

    a condition         given, parser, tokens, conditions
    many messages       message_filter, texts
"""
