"""Fuzzers that attack the store, as commands: `python -m tests.fuzz NAME`."""
