"""Subscriptions: durable cursors over all queues of a topic."""
