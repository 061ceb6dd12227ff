"""The methods that a fault, and a look at the record, can name."""

from __future__ import annotations

from typing import Final

MESSAGING: Final = frozenset((
    "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage", "EndTransaction",
    "ForwardMessageToDeadLetterQueue", "NotifyClientTermination", "ChangeInvisibleDuration", "RecallMessage",
    "Telemetry", "SyncLiteSubscription", "Connect",
))  # fmt: skip
ADMIN: Final = frozenset((
    "DescribeTopicStatus", "ListSubscription", "DescribeSubscription", "DeleteSubscription",
    "DescribeGroupAccumulation", "ListConsumerConnection", "ResetGroupOffset", "QueryMessage", "QueryTimeSpan",
    "GetProxyRuntimeStats", "AdminSendMessage",
))  # fmt: skip
REMOTE: Final = frozenset((
    "hello", "submit", "submit_odd", "append_columns", "append_batch", "transaction", "read", "read_batch", "get_range",
    "scan", "scan_next", "subscribe", "receive", "receive_few", "close",
    "flush", "trim", "delete_topic", "configure_topic", "cancel_delayed", "reschedule_delayed", "redrive",
    "queue_bounds", "offset_at", "topics", "queues", "topic_settings", "subscriptions", "delete_subscription", "stats",
    "metrics", "attach_pending", "ack", "ack_up_to", "nack", "extend", "seek", "change", "ack_batch", "nack_batch",
    "backlog", "positions", "in_flight", "message_of", "topic_of",
))  # fmt: skip

# Methods of the objects of `stratalog.connect` that travel by other names: both can be given.
TWINS: Final = {
    "append": ("submit", "submit_odd"), "submit": ("submit", "submit_odd"),
    "append_batch": ("append_batch", "append_columns"), "submit_columns": ("append_columns",),
    "receive": ("receive", "receive_few"), "receive_batch": ("receive",),
    "submit_ack": ("ack",), "skip_all": ("seek",), "commit": ("transaction",),
}  # fmt: skip
_ASYNC = "_async"


def methods_of(name: object) -> tuple[str, ...]:
    """The methods that a name stands for. Raises ValueError if there is none."""
    if isinstance(name, str):
        plain = name.removesuffix(_ASYNC) if name.removesuffix(_ASYNC) in REMOTE | TWINS.keys() else name
        found = TWINS.get(plain, (plain,))
        if plain in TWINS or plain in MESSAGING | ADMIN | REMOTE:
            return found
    raise ValueError(
        f"no method is named {name!r}; there are those of RocketMQ, as SendMessage, and those of stratalog.connect, as "
        f"append: see stratalog.endpoint.faults.methods. Others are selected by where=lambda call: call.method == .."
    )
