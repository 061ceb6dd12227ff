"""Filters: the language, and the answers for many messages."""
