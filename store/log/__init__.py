"""Appending: requests, batches, lanes, flushers, and what goes on in the background."""
