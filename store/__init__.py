"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it.

Begin with `MessageStore.open`.
"""

from .checks import Payload
from .config import CacheConfig, StoreConfig
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
from .repair import Loss
from .request import Extras, Ticket
from .store import MessageStore
from .verify import VerifyReport, verify_folder

__all__ = [
    "CacheConfig",
    "Extras",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidTopic",
    "Loss",
    "Message",
    "MessageBatch",
    "MessageStore",
    "MessageTooLarge",
    "OffsetOutOfRange",
    "Payload",
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
