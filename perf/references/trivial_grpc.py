"""A server of grpc.aio whose handler does nothing: it parses a send and gives back an answer that is ready.

    python -m stratalog.perf.references.trivial_grpc

It prints its address, and serves until the standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

METHOD = "/trivial/Send"


async def _serve() -> None:
    import grpc  # noqa: PLC0415  # an extra

    from ...endpoint.wire import CLASSES  # noqa: PLC0415  # as above

    answer = CLASSES["SendMessageResponse"](status={"code": 20000})
    answer.entries.add(status=answer.status, message_id="01" * 17, transaction_id="01" * 17)

    async def send(request: Any, context: Any) -> Any:
        return answer

    handler = grpc.unary_unary_rpc_method_handler(
        send,
        request_deserializer=CLASSES["SendMessageRequest"].FromString,
        response_serializer=CLASSES["SendMessageResponse"].SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("trivial", {"Send": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(_serve())
