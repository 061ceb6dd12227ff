"""Errors of the store as codes of gRPC: for services whose answers have no code of their own."""

from __future__ import annotations

import logging

import grpc

from stratalog import (
    InvalidConfig,
    InvalidMessage,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    PublishBufferFull,
    StaleReceipt,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StorePoisoned,
    StoreReadOnly,
    StoreUnreadable,
    StoreUnusable,
    SubscriptionClosed,
    TopicFull,
)

from .calls import Refusal

log = logging.getLogger("stratalog.endpoint")
Code = grpc.StatusCode
CODES: dict[type[StoreError], grpc.StatusCode] = {
    MessageTooLarge: Code.INVALID_ARGUMENT,
    InvalidTopic: Code.INVALID_ARGUMENT,
    InvalidMessage: Code.INVALID_ARGUMENT,
    InvalidConfig: Code.INVALID_ARGUMENT,
    OffsetOutOfRange: Code.OUT_OF_RANGE,
    StaleReceipt: Code.FAILED_PRECONDITION,
    SubscriptionClosed: Code.FAILED_PRECONDITION,
    StoreReadOnly: Code.FAILED_PRECONDITION,
    PublishBufferFull: Code.RESOURCE_EXHAUSTED,
    TopicFull: Code.RESOURCE_EXHAUSTED,
    StoreFull: Code.RESOURCE_EXHAUSTED,
    StoreCorrupt: Code.DATA_LOSS,
    StorePoisoned: Code.UNAVAILABLE,
    StoreClosed: Code.UNAVAILABLE,
    StoreLocked: Code.UNAVAILABLE,
    StoreUnreadable: Code.UNAVAILABLE,
    StoreUnusable: Code.FAILED_PRECONDITION,
}


def grpc_code_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """The code and text of an error. One that nobody has thought of is INTERNAL, and is logged."""
    if isinstance(error, Refusal):
        return error.code, error.text
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind], str(error)
    if isinstance(error, StoreError):
        return Code.UNKNOWN, str(error)
    if isinstance(error, TimeoutError):
        return Code.DEADLINE_EXCEEDED, str(error) or "it took too long"
    log.error("a call failed", exc_info=error)
    return Code.INTERNAL, f"{type(error).__name__}: {error}"
