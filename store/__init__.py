"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it."""

from cache import CacheConfig

from .config import StoreConfig
from .errors import (
    InvalidConfig,
    InvalidMessage,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    PublishBufferFull,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StorePoisoned,
    StoreUnreadable,
    StoreUnusable,
)
from .inspect import inspect_folder
from .message import Message, MessageBatch
from .request import Ticket
from .store import MessageStore
from .verify import VerifyReport, verify_folder

__all__ = [
    "CacheConfig",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidTopic",
    "Message",
    "MessageBatch",
    "MessageStore",
    "MessageTooLarge",
    "OffsetOutOfRange",
    "PublishBufferFull",
    "StoreClosed",
    "StoreConfig",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StorePoisoned",
    "StoreUnreadable",
    "StoreUnusable",
    "Ticket",
    "VerifyReport",
    "inspect_folder",
    "verify_folder",
]
