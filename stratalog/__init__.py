"""stratalog: an embedded, durable message store. Open a folder: it holds topics, queues and offsets.

Begin with `MessageStore.open`. The other modules:

    stratalog.tools     verify, inspect, compact, rebuild and replace a folder
    stratalog.bulk      shards: other processes write many messages, and one commit attaches them
    stratalog.plans     reads of a whole store in parts, for other processes
    stratalog.index     timers, the purgatory, trackers of delayed messages
    stratalog.pipeline  Spark
    stratalog.endpoint  a store for other processes and languages: RocketMQ's protocol, and `connect`'s other end
    stratalog.testing   a simulated disk with power cuts, and a clock that a test moves
    stratalog.perf      the measurements

`stratalog.store`, `stratalog.cache` and the others are links to the folders of the repository.
"""

from typing import TYPE_CHECKING

from .remote import connect
from .store import (
    Backlog,
    BatchTicket,
    CacheConfig,
    Delivery,
    DeliveryBatch,
    Extras,
    InvalidConfig,
    InvalidMessage,
    InvalidTopic,
    Loss,
    Message,
    MessageBatch,
    MessageColumns,
    MessageStore,
    MessageTooLarge,
    OffsetOutOfRange,
    Payload,
    PublishBufferFull,
    StaleReceipt,
    Stats,
    StoreClosed,
    StoreConfig,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StorePoisoned,
    StoreReader,
    StoreReadOnly,
    StoreUnreadable,
    StoreUnusable,
    Subscription,
    SubscriptionClosed,
    SubscriptionInfo,
    SubscriptionSettings,
    Ticket,
    TopicFull,
    TopicSettings,
    Transaction,
)

__version__: str  # of the package

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
    "Stats",
    "StoreClosed",
    "StoreConfig",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StorePoisoned",
    "StoreReadOnly",
    "StoreReader",
    "StoreUnreadable",
    "StoreUnusable",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionInfo",
    "SubscriptionSettings",
    "Ticket",
    "TopicFull",
    "TopicSettings",
    "Transaction",
    "connect",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """`__version__`, looked up on first use: reading a package's metadata takes some ms."""
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415  # see above

            return version("stratalog")
        raise AttributeError(f"module 'stratalog' has no attribute {name!r}")
