"""A store for other processes: the service `stratalog.v1`, and the client that `stratalog.connect` gives.

Begin with `client.store` and `server.service`. One gRPC stream a connection carries all calls.

    both ends           frames, values, columns, failures
    client/             the object with the store's own names, its subscriptions, transactions and tickets
    server/             a connection's calls, made on the store
"""
