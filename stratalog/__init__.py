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

`stratalog.store`, `stratalog.cache` and the others are links to the folders of the repository. Importing `stratalog`
alone loads none of them, and not numpy: a name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .on_demand import names_on_demand

if TYPE_CHECKING:
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

__version__ = "0.1.0"  # the one place: pyproject.toml reads it here

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

PARTS = ("cache", "index", "remote", "store")  # modules that are there without an import of their own
PLACES = {**dict.fromkeys(__all__, "store"), "connect": "remote", **{name: name for name in PARTS}}

if not TYPE_CHECKING:  # a type checker that sees a function for all names misses what is wrong
    __getattr__, __dir__ = names_on_demand(__name__, PLACES)
