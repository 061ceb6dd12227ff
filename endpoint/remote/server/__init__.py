"""The service `stratalog.v1`: connections, and their calls on a store.

the service         service, session, gate
calls               appends, store_calls, holdings
"""
