"""What a call answers: status codes and texts, also for the errors of the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import grpc

from stratalog import (
    InvalidMessage,
    InvalidTopic,
    MessageTooLarge,
    PublishBufferFull,
    StaleReceipt,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    SubscriptionClosed,
    TopicFull,
)

from ..server.calls import Refusal
from ..wire import CLASSES, Code

Status: Final = CLASSES["Status"]
OK: Final = Status(code=Code.OK, message="OK")

_log = logging.getLogger("stratalog.endpoint")

_CODES: Final[tuple[tuple[type[StoreError], Code], ...]] = (
    (MessageTooLarge, Code.MESSAGE_BODY_TOO_LARGE),
    (InvalidTopic, Code.ILLEGAL_TOPIC),
    (TopicFull, Code.TOO_MANY_REQUESTS),
    (PublishBufferFull, Code.TOO_MANY_REQUESTS),
    (StaleReceipt, Code.INVALID_RECEIPT_HANDLE),
    (StoreFull, Code.INTERNAL_SERVER_ERROR),
    (StoreCorrupt, Code.MESSAGE_CORRUPTED),
    (InvalidMessage, Code.BAD_REQUEST),
    (SubscriptionClosed, Code.CONSUMER_GROUP_NOT_FOUND),
    (StoreClosed, Code.INTERNAL_SERVER_ERROR),
)

_REFUSALS: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: Code.BAD_REQUEST,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Code.TOO_MANY_REQUESTS,
    grpc.StatusCode.UNAUTHENTICATED: Code.UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: Code.FORBIDDEN,
    grpc.StatusCode.DEADLINE_EXCEEDED: Code.PROXY_TIMEOUT,
}


class Refused(Exception):
    """A call that is answered with a code other than OK."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def no_topic(topic: str) -> Refused:
    """There is no such topic, in the words of RocketMQ's broker."""
    return Refused(Code.TOPIC_NOT_FOUND, f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}")


def status_of(error: Exception) -> Any:
    """The status that tells of an error: of the caller's, of the store's, or of one that nobody expected."""
    if isinstance(error, Refused):
        return Status(code=error.code, message=str(error))
    if isinstance(error, Refusal):
        return Status(code=_refusal_code(error), message=error.text)
    if isinstance(error, StoreError):
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_SERVER_ERROR)
        return Status(code=code, message=str(error))
    _log.error("a call has failed", exc_info=error)
    return Status(code=Code.INTERNAL_SERVER_ERROR, message=f"{type(error).__name__}: {error}")


def status_of_all(statuses: Sequence[Any]) -> Any:
    """The status of a call whose parts have these: theirs if all have one code, else that they differ."""
    if len({one.code for one in statuses}) == 1:
        return statuses[0]
    return Status(code=Code.MULTIPLE_RESULTS, message="mixed results")


def _refusal_code(error: Refusal) -> int:
    if error.status is not None:
        return error.status
    return _REFUSALS.get(error.code, Code.INTERNAL_SERVER_ERROR)
