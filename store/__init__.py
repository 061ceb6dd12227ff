"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it.

Begin with `MessageStore.open`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api.arrow import arrow_column
    from .api.beside import inspect_folder, verify_folder
    from .api.checks import Payload
    from .api.commits import Commit, abort_shards, commit_shards, sweep_shards
    from .api.compacting import Compacted, compact_store
    from .api.figures import ReaderStats, Stats
    from .api.looking import look_into_folder
    from .api.metering import metric_families
    from .api.rebuilding import InParts, Rebuilt, rebuild_store
    from .api.replacing import check_replaceable, note_shards, noted_shards, put_store, replace_store
    from .api.scan_plans import ScanPlanner, plan_scan, read_part
    from .api.shard_writer import ShardWriter
    from .api.store import MessageStore
    from .api.store_reader import StoreReader
    from .api.transaction import Transaction
    from .config import CacheConfig, StoreConfig
    from .errors import (
        InvalidConfig,
        InvalidMessage,
        InvalidTopic,
        LogOvertaken,
        MessageTooLarge,
        OffsetOutOfRange,
        PublishBufferFull,
        ReplayDiffers,
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
    from .format.blobs import Blobs
    from .format.extras import Extras
    from .format.shard import Shard
    from .live.figures_watch import FolderWatch, watch_folder
    from .log.streams import store_of
    from .log.ticket import BatchTicket, Ticket
    from .metrics.catalogue import described as described_metrics
    from .metrics.family import MetricFamily
    from .plans.batch import ScanBatch
    from .plans.limits import ScanLimit
    from .plans.plan import LogPosition, ScanPart, ScanPlan
    from .read.columns import MessageColumns
    from .read.message import Message, MessageBatch
    from .read.wanted import ScanFilter, StreamTable
    from .recovery.repair import Loss
    from .subscriptions.backlog import Backlog
    from .subscriptions.delivery import Delivery, DeliveryBatch
    from .subscriptions.info import SubscriptionInfo
    from .subscriptions.positions import InFlightMessage, Position
    from .subscriptions.settings import Settings as SubscriptionSettings
    from .subscriptions.subscription import Subscription
    from .subscriptions.topics_subscription import TopicsSubscription
    from .topics.settings import TopicSettings
    from .verify.report import VerifyReport

__all__ = [
    "Backlog",
    "BatchTicket",
    "Blobs",
    "CacheConfig",
    "Commit",
    "Compacted",
    "Delivery",
    "DeliveryBatch",
    "Extras",
    "FolderWatch",
    "InFlightMessage",
    "InParts",
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
    "MetricFamily",
    "OffsetOutOfRange",
    "Payload",
    "Position",
    "PublishBufferFull",
    "ReaderStats",
    "Rebuilt",
    "ReplayDiffers",
    "ScanBatch",
    "ScanFilter",
    "ScanLimit",
    "ScanPart",
    "ScanPlan",
    "ScanPlanner",
    "Shard",
    "ShardWriter",
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
    "StreamTable",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionInfo",
    "SubscriptionSettings",
    "Ticket",
    "TopicFull",
    "TopicSettings",
    "TopicsSubscription",
    "Transaction",
    "VerifyReport",
    "abort_shards",
    "arrow_column",
    "check_replaceable",
    "commit_shards",
    "compact_store",
    "described_metrics",
    "inspect_folder",
    "look_into_folder",
    "metric_families",
    "note_shards",
    "noted_shards",
    "plan_scan",
    "put_store",
    "read_part",
    "rebuild_store",
    "replace_store",
    "store_of",
    "sweep_shards",
    "verify_folder",
    "watch_folder",
]

# The module of each name, which is loaded when the name is first used: `module`, or `module:its name there`.
PLACES = {
    "Backlog": "subscriptions.backlog",
    "BatchTicket": "log.ticket",
    "Blobs": "format.blobs",
    "CacheConfig": "config",
    "Commit": "api.commits",
    "Compacted": "api.compacting",
    "Delivery": "subscriptions.delivery",
    "DeliveryBatch": "subscriptions.delivery",
    "Extras": "format.extras",
    "FolderWatch": "live.figures_watch",
    "InFlightMessage": "subscriptions.positions",
    "InParts": "api.rebuilding",
    "InvalidConfig": "errors",
    "InvalidMessage": "errors",
    "InvalidTopic": "errors",
    "LogOvertaken": "errors",
    "LogPosition": "plans.plan",
    "Loss": "recovery.repair",
    "Message": "read.message",
    "MessageBatch": "read.message",
    "MessageColumns": "read.columns",
    "MessageStore": "api.store",
    "MessageTooLarge": "errors",
    "MetricFamily": "metrics.family",
    "OffsetOutOfRange": "errors",
    "Payload": "api.checks",
    "Position": "subscriptions.positions",
    "PublishBufferFull": "errors",
    "ReaderStats": "api.figures",
    "Rebuilt": "api.rebuilding",
    "ReplayDiffers": "errors",
    "ScanBatch": "plans.batch",
    "ScanFilter": "read.wanted",
    "ScanLimit": "plans.limits",
    "ScanPart": "plans.plan",
    "ScanPlan": "plans.plan",
    "ScanPlanner": "api.scan_plans",
    "Shard": "format.shard",
    "ShardWriter": "api.shard_writer",
    "StaleReceipt": "errors",
    "Stats": "api.figures",
    "StoreClosed": "errors",
    "StoreConfig": "config",
    "StoreCorrupt": "errors",
    "StoreError": "errors",
    "StoreFull": "errors",
    "StoreLocked": "errors",
    "StorePoisoned": "errors",
    "StoreReadOnly": "errors",
    "StoreReader": "api.store_reader",
    "StoreUnreadable": "errors",
    "StoreUnusable": "errors",
    "StreamTable": "read.wanted",
    "Subscription": "subscriptions.subscription",
    "SubscriptionClosed": "errors",
    "SubscriptionInfo": "subscriptions.info",
    "SubscriptionSettings": "subscriptions.settings:Settings",
    "Ticket": "log.ticket",
    "TopicFull": "errors",
    "TopicSettings": "topics.settings",
    "TopicsSubscription": "subscriptions.topics_subscription",
    "Transaction": "api.transaction",
    "VerifyReport": "verify.report",
    "abort_shards": "api.commits",
    "arrow_column": "api.arrow",
    "check_replaceable": "api.replacing",
    "commit_shards": "api.commits",
    "compact_store": "api.compacting",
    "described_metrics": "metrics.catalogue:described",
    "inspect_folder": "api.beside",
    "look_into_folder": "api.looking",
    "metric_families": "api.metering",
    "note_shards": "api.replacing",
    "noted_shards": "api.replacing",
    "plan_scan": "api.scan_plans",
    "put_store": "api.replacing",
    "read_part": "api.scan_plans",
    "rebuild_store": "api.rebuilding",
    "replace_store": "api.replacing",
    "store_of": "log.streams",
    "sweep_shards": "api.commits",
    "verify_folder": "api.beside",
    "watch_folder": "live.figures_watch",
}

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.store: this folder is a part of the package stratalog")

if not TYPE_CHECKING:  # a type checker that sees a function for all names misses what is wrong
    from ..on_demand import names_on_demand

    __getattr__, __dir__ = names_on_demand(__name__, PLACES)
