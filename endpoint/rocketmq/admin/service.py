"""The service: which method answers which call. Those that are not here are UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from ...server.calls import Call
from ...server.service import Service
from ...wire import CLASSES
from ...wire.fields import PACKAGE
from ..statuses import status_of
from .describing import Describing
from .querying import Querying
from .resetting import Resetting

if TYPE_CHECKING:
    from stratalog import MessageStore

    from ..clients import Clients
    from ..groups import Groups
    from ..topics import Topics

ADMIN_SERVICE: Final = f"{PACKAGE}.Admin"
MESSAGES: Final = {"QueryMessage": "ListMessage"}  # methods whose messages have another name


def admin_service(
    store: MessageStore, clients: Clients, groups: Groups, topics: Topics, connections: Callable[[], int]
) -> Service:  # fmt: skip
    """The `Admin` service of an endpoint; `connections` says how many it has."""
    describing, resetting = Describing(store, clients, topics, connections), Resetting(store, groups)
    calls: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
        "DescribeTopicStatus": describing.describe_topic_status,
        "ListSubscription": describing.list_subscription,
        "DescribeSubscription": describing.describe_subscription,
        "DeleteSubscription": resetting.delete_subscription,
        "DescribeGroupAccumulation": describing.describe_group_accumulation,
        "ListConsumerConnection": describing.list_consumer_connection,
        "ResetGroupOffset": resetting.reset_group_offset,
        "QueryMessage": Querying(store).query_message,
        "QueryTimeSpan": describing.query_time_span,
        "GetProxyRuntimeStats": describing.get_proxy_runtime_stats,
    }
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=_class(name, "Request").FromString,
            response_serializer=_class(name, "Response").SerializeToString,
        )
        for name, call in calls.items()
    }  # fmt: skip
    return Service(ADMIN_SERVICE, methods, error_answer=_error_answer)


def _class(method: str, kind: str) -> Any:
    return CLASSES[f"{MESSAGES.get(method, method)}{kind}"]


def _error_answer(call: Call, error: Exception) -> Any:
    return _class(call.method, "Response")(status=status_of(error))
