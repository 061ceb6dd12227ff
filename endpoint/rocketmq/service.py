"""The service: which method answers which call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from ..server.calls import Call
from ..server.service import Service
from ..wire import CLASSES, SERVICE, Code
from .clients import Clients
from .forwarding import Forwarding
from .groups import Groups
from .options import RocketMQOptions
from .recalling import Recalling
from .receiving import Receiving
from .routing import Routing
from .sending import Sending
from .settling import Settling
from .statuses import Refused, status_of
from .telemetry import Telemetry
from .topics import Topics
from .transactions import Transactions

if TYPE_CHECKING:
    from stratalog import MessageStore

Unary = Callable[[Any, Any], Awaitable[Any]]

RECEIVE: Final = "ReceiveMessage"
TELEMETRY: Final = "Telemetry"


class MessagingService:
    """RocketMQ 5's `MessagingService` on a store. Made and used on one event loop; `start`, and `close` at the end."""

    def __init__(self, store: MessageStore, options: RocketMQOptions) -> None:
        self.options = options
        self._store = store
        self.clients = Clients()
        self.topics = Topics(store, options)
        self.groups = Groups(store, options, self.topics)
        self.transactions = Transactions(store, options, self.topics, self.clients)
        self.receiving = Receiving(self.groups, self.clients, options)
        self._telemetry = Telemetry(self.clients, options, self.transactions.producer_came)
        self.sending = Sending(store, options, self.topics, self.transactions)
        self._forwarding = Forwarding(store, self.topics, self.groups, self.clients)
        routing, settling = Routing(self.topics, self.clients), Settling(self.groups, self.clients)
        self._unary: dict[str, Unary] = {
            "QueryRoute": routing.query_route,
            "QueryAssignment": routing.query_assignment,
            "Heartbeat": self._telemetry.heartbeat,
            "NotifyClientTermination": self._telemetry.terminate,
            "SendMessage": self.sending.send_message,
            "RecallMessage": Recalling(store).recall_message,
            "EndTransaction": self.transactions.end_transaction,
            "AckMessage": settling.ack_message,
            "ChangeInvisibleDuration": settling.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": self._forwarding.forward,
            "SyncLiteSubscription": _no_lite_topics,
        }

    async def start(self) -> None:
        """Take up the transactions that an earlier endpoint has left."""
        await self.transactions.start()

    async def close(self) -> None:
        """End what runs, and give all messages back that consumers have. Waiting calls are answered: nothing new."""
        self.clients.close()
        await self.transactions.close()
        await self._forwarding.close()
        await self.receiving.close()
        await asyncio.to_thread(self.groups.close)

    async def reset(self) -> None:
        """Remove all topics, groups and transactions, while clients run. Receives that wait hear of nothing new."""
        self.clients.forget_held()
        await self.transactions.reset()
        await asyncio.to_thread(self.groups.close)
        await asyncio.to_thread(self._remove_all)
        self.topics.forget()

    def _remove_all(self) -> None:
        for one in self._store.subscriptions():  # here and below: a test's reset is of all that there is
            self._store.delete_subscription(one.topic, one.name)
        for topic in self._store.topics():  # as above
            self._store.delete_topic(topic)

    def service(self) -> Service:
        """The service for a server. Errors are statuses in its answers, as the clients expect them."""
        one, one_to_many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        many_to_many = grpc.stream_stream_rpc_method_handler
        methods = {name: _handler(name, one, call) for name, call in self._unary.items()}
        methods[RECEIVE] = _handler(RECEIVE, one_to_many, self.receiving.receive_message)
        methods[TELEMETRY] = _handler(TELEMETRY, many_to_many, self._telemetry.telemetry)
        return Service(SERVICE, methods, error_answer=_error_answer, waits=(RECEIVE, TELEMETRY))


def _handler(name: str, make: Callable[..., Any], call: Callable[..., Any]) -> Any:
    asked, answer = _classes(name)
    return make(call, request_deserializer=asked.FromString, response_serializer=answer.SerializeToString)


def _classes(name: str) -> tuple[Any, Any]:
    """The messages of a method: what is asked, and what is answered."""
    if name == TELEMETRY:
        return CLASSES["TelemetryCommand"], CLASSES["TelemetryCommand"]
    return CLASSES[f"{name}Request"], CLASSES[f"{name}Response"]


def _error_answer(call: Call, error: Exception) -> Any:
    return _classes(call.method)[1](status=status_of(error))


async def _no_lite_topics(request: Any, context: Any) -> Any:
    raise Refused(Code.UNSUPPORTED, "this endpoint has no lite topics")
