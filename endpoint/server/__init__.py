"""The port of an endpoint: everything about gRPC that is not about one service.

Begin with `server`.

    the server          server, loop_thread
    calls               calls, service, codes, users, request_bytes
    connections         front, relay, certificate, limits, forks
"""
