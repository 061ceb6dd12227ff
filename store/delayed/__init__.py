"""Delayed delivery in the store: an index a topic, shared by its subscriptions (R31 to R35)."""
