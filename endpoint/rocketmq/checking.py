"""The rules for a message that a client sends, with the codes and limits of RocketMQ's proxy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ..wire import Code
from ..wire.codes import MessageType
from .statuses import Refused
from .times import LATEST_MS, LONGEST_MS, ms_of

MOST_AT_ONCE: Final = 1024  # messages of a send, receipts of an acknowledgement
MOST_PROPERTIES: Final = 128
MOST_PROPERTY_BYTES: Final = 16 << 10
MOST_GROUP: Final = 64
MOST_ID_BYTES: Final = 255
RESERVED: Final = frozenset((
    "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "PGROUP", "TRAN_MSG", "MIN_OFFSET", "MAX_OFFSET", "REAL_TOPIC",
    "REAL_QID", "TIMER_DELIVER_MS", "CONSUME_START_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DUP_INFO",
    "TRACE_CONTEXT", "POP_CK", "INNER_NUM", "INNER_BASE",
))  # fmt: skip


def check_count(given: Sequence[Any], what: str) -> None:
    """Raise Refused for a list so long that the loop would have no time for other clients."""
    if len(given) > MOST_AT_ONCE:
        raise Refused(Code.BAD_REQUEST, f"a call has {len(given)} {what}, and at most {MOST_AT_ONCE} are taken")


def check_message(message: Any, max_body_bytes: int) -> None:
    """Raise Refused for what is not allowed in a message."""
    size = len(message.body)
    if size > max_body_bytes:
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {max_body_bytes}")
    system = message.system_properties
    if not size:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "message body is empty")
    if not 0 < len(system.message_id.encode()) <= MOST_ID_BYTES:
        raise Refused(Code.ILLEGAL_MESSAGE_ID, f"message id is 1 to {MOST_ID_BYTES} bytes")
    if system.HasField("tag"):
        _check_tag(system.tag)
    if system.keys and any(not key.strip() for key in system.keys):
        raise Refused(Code.ILLEGAL_MESSAGE_KEY, "key cannot be blank")
    if system.HasField("message_group"):
        _check_group(system.message_group)
    if message.user_properties:
        _check_properties(message.user_properties)
    _check_times(system)
    _check_type(system)


def check_accepted(message: Any, types: Collection[MessageType]) -> None:
    """Raise Refused for a message of a type that its topic does not take. It has been checked."""
    system = message.system_properties
    is_half = system.message_type == MessageType.TRANSACTION
    kind = MessageType.TRANSACTION if is_half else type_by_fields(system)
    if kind not in types:
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic {message.topic.name} takes messages of the types {', '.join([one.name for one in types])}, and "
            f"this one is {kind.name}",
        )


def type_by_fields(system: Any) -> MessageType:
    """The type of a message by what it has; a transaction's does not show there."""
    if system.HasField("message_group"):
        return MessageType.FIFO
    return MessageType.DELAY if system.HasField("delivery_timestamp") else MessageType.NORMAL


def _check_tag(tag: str) -> None:
    if not tag.strip() or "|" in tag or not tag.isprintable():
        raise Refused(Code.ILLEGAL_MESSAGE_TAG, "tag cannot be blank, and has no '|' and no control character")


def _check_group(group: str) -> None:
    if not group.strip() or len(group) > MOST_GROUP or not group.isprintable():
        raise Refused(Code.ILLEGAL_MESSAGE_GROUP, f"message group is 1 to {MOST_GROUP} printable characters")


def _check_properties(properties: Any) -> None:
    if len(properties) > MOST_PROPERTIES:
        raise Refused(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {MOST_PROPERTIES}")
    size = 0
    for name, value in properties.items():
        if not name or name in RESERVED:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        size += len(name) + len(value)
    if size > MOST_PROPERTY_BYTES:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties are too large, max is {MOST_PROPERTY_BYTES} bytes",
        )


def _check_times(system: Any) -> None:
    """Times that come back to a client as they were: one that does not fit could not be given to anybody."""
    if not 0 <= ms_of(system.delivery_timestamp) <= LATEST_MS:
        raise Refused(Code.ILLEGAL_DELIVERY_TIME, "the delivery time is too far from now")
    if not 0 <= ms_of(system.born_timestamp) <= LATEST_MS:
        raise Refused(Code.BAD_REQUEST, f"the time at which a message was born is 0 to {LATEST_MS} ms")
    if not 0 <= ms_of(system.orphaned_transaction_recovery_duration) <= LONGEST_MS:
        raise Refused(Code.BAD_REQUEST, f"the time until a transaction is asked about is 0 to {LONGEST_MS} ms")


def _check_type(system: Any) -> None:
    """The type says what the message has; types that the store does not know are refused."""
    kind = system.message_type
    if kind in (MessageType.LITE, MessageType.PRIORITY) or system.HasField("lite_topic") or system.HasField("priority"):
        raise Refused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "this endpoint takes no lite topics and no priorities")
    has_group, is_delayed = system.HasField("message_group"), system.HasField("delivery_timestamp")
    if has_group and is_delayed:
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message has a message group or a delivery time, not both"
        )
    if kind == MessageType.TRANSACTION and (has_group or is_delayed):
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "transactional message should not set messageGroup or deliveryTimestamp",
        )
