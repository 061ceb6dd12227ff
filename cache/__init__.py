"""Tiers of memory for messages: knows bytes, streams and offsets, nothing of files of the log or of topics.

A store uses three of its parts. A `MessageCache` is filled after the appends. A `ReadCache` is asked before the device.
A `MemoryPlan` has the sizes of both. No message depends on a cache: it may forget anything at any time, and it forgets
everything when the process ends.
"""

from .admission import Admission
from .batch import Batch, first_of_each, grown
from .block_cache import NO_HIT, BlockCache, CachedMessages
from .config import CacheConfig, TunedCacheConfig
from .container import available_bytes
from .cursors import ActiveCursors
from .edge import EdgeCache, Edges, device_blocks, edge_lengths
from .errors import CacheError, CacheUnusable, InvalidCacheConfig
from .message_cache import MessageCache
from .plan import MemoryPlan, plan_memory
from .read_ahead import ReadAhead
from .read_cache import ReadCache
from .tier import Tier

__all__ = [
    "NO_HIT",
    "ActiveCursors",
    "Admission",
    "Batch",
    "BlockCache",
    "CacheConfig",
    "CacheError",
    "CacheUnusable",
    "CachedMessages",
    "EdgeCache",
    "Edges",
    "InvalidCacheConfig",
    "MemoryPlan",
    "MessageCache",
    "ReadAhead",
    "ReadCache",
    "Tier",
    "TunedCacheConfig",
    "available_bytes",
    "device_blocks",
    "edge_lengths",
    "first_of_each",
    "grown",
    "plan_memory",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.cache: this folder is a part of the package stratalog")
