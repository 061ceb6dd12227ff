"""The service `stratalog.v1` and its client: lost connections, processes that die, misuse."""
