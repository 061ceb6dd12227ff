"""The service `stratalog.v1`: connections, and their calls on a store.

the service         service, session
calls               appends, store_calls, holdings
"""
