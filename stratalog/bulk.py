"""Bulk commits: any process writes shards, and one commit attaches them to a store."""

from .store import (
    Blobs,
    Commit,
    ReplayDiffers,
    Shard,
    ShardWriter,
    abort_shards,
    arrow_column,
    commit_shards,
    sweep_shards,
)

__all__ = [
    "Blobs",
    "Commit",
    "ReplayDiffers",
    "Shard",
    "ShardWriter",
    "abort_shards",
    "arrow_column",
    "commit_shards",
    "sweep_shards",
]
