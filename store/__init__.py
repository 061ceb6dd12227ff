"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it.

Begin with `MessageStore.open`.
"""

from .api.arrow import arrow_column
from .api.beside import inspect_folder, verify_folder
from .api.checks import Payload
from .api.looking import look_into_folder
from .api.scan_plans import plan_scan, read_part
from .api.store import MessageStore
from .config import CacheConfig, StoreConfig
from .errors import (
    InvalidConfig,
    InvalidMessage,
    InvalidTopic,
    LogOvertaken,
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
from .format.blobs import Blobs
from .format.extras import Extras
from .log.ticket import BatchTicket, Ticket
from .plans.batch import ScanBatch
from .plans.plan import LogPosition, ScanPart, ScanPlan
from .plans.wanted import ScanFilter, StreamTable
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
    "Blobs",
    "CacheConfig",
    "Delivery",
    "DeliveryBatch",
    "Extras",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidTopic",
    "LogOvertaken",
    "LogPosition",
    "Loss",
    "Message",
    "MessageBatch",
    "MessageColumns",
    "MessageStore",
    "MessageTooLarge",
    "OffsetOutOfRange",
    "Payload",
    "PublishBufferFull",
    "ScanBatch",
    "ScanFilter",
    "ScanPart",
    "ScanPlan",
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
    "StreamTable",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionInfo",
    "SubscriptionSettings",
    "Ticket",
    "VerifyReport",
    "arrow_column",
    "inspect_folder",
    "look_into_folder",
    "plan_scan",
    "read_part",
    "verify_folder",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.store: this folder is a part of the package stratalog")
