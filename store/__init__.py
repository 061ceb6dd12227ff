"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it.

Begin with `MessageStore.open`.
"""

from .api.arrow import arrow_column
from .api.beside import inspect_folder, verify_folder
from .api.checks import Payload
from .api.commits import Commit, abort_shards, commit_shards, sweep_shards
from .api.looking import look_into_folder
from .api.shard_writer import ShardWriter
from .api.store import MessageStore
from .config import CacheConfig, StoreConfig
from .errors import (
    InvalidConfig,
    InvalidMessage,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    PublishBufferFull,
    ReplayDiffers,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StorePoisoned,
    StoreReadOnly,
    StoreUnreadable,
    StoreUnusable,
)
from .format.extras import Extras
from .format.shard import Shard
from .log.ticket import BatchTicket, Ticket
from .read.columns import MessageColumns
from .read.message import Message, MessageBatch
from .recovery.repair import Loss
from .verify.report import VerifyReport

__all__ = [
    "BatchTicket",
    "CacheConfig",
    "Commit",
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
    "ReplayDiffers",
    "Shard",
    "ShardWriter",
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
    "Ticket",
    "VerifyReport",
    "abort_shards",
    "arrow_column",
    "commit_shards",
    "inspect_folder",
    "look_into_folder",
    "sweep_shards",
    "verify_folder",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.store: this folder is a part of the package stratalog")
