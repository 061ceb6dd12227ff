"""Bulk commits: shards that any process writes, and that one commit attaches to a store."""

from .store import (
    Commit,
    Shard,
    ShardWriter,
    abort_shards,
    arrow_column,
    commit_shards,
    sweep_shards,
)

__all__ = [
    "Commit",
    "Shard",
    "ShardWriter",
    "abort_shards",
    "arrow_column",
    "commit_shards",
    "sweep_shards",
]
