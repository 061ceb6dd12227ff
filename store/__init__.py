"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it.

Begin with `MessageStore.open`.
"""

from .api.arrow import arrow_column
from .api.beside import inspect_folder, verify_folder
from .api.checks import Payload
from .api.looking import look_into_folder
from .api.store import MessageStore
from .config import CacheConfig, StoreConfig
from .errors import (
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
)
from .format.extras import Extras
from .log.ticket import BatchTicket, Ticket
from .read.columns import MessageColumns
from .read.message import Message, MessageBatch
from .recovery.repair import Loss
from .subscriptions.backlog import Backlog
from .subscriptions.delivery import Delivery, DeliveryBatch
from .subscriptions.registry import SubscriptionInfo
from .subscriptions.settings import Settings as SubscriptionSettings
from .subscriptions.subscription import Subscription
from .verify.report import VerifyReport

__all__ = [
    "Backlog",
    "BatchTicket",
    "CacheConfig",
    "Delivery",
    "DeliveryBatch",
    "Extras",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidTopic",
    "Loss",
    "Message",
    "MessageBatch",
    "MessageColumns",
    "MessageStore",
    "MessageTooLarge",
    "OffsetOutOfRange",
    "Payload",
    "PublishBufferFull",
    "StaleReceipt",
    "StoreClosed",
    "StoreConfig",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StorePoisoned",
    "StoreReadOnly",
    "StoreUnreadable",
    "StoreUnusable",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionInfo",
    "SubscriptionSettings",
    "Ticket",
    "VerifyReport",
    "arrow_column",
    "inspect_folder",
    "look_into_folder",
    "verify_folder",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.store: this folder is a part of the package stratalog")
