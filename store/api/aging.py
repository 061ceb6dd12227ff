"""Puts together the part of a store that gives topics an age of their own."""

from __future__ import annotations

from ..delayed.delays import Delays
from ..delayed.outliving import Outliving
from ..log.removal import Removal
from ..subscriptions.registry import Subscriptions
from ..topics.aging import TopicAges
from ..topics.table import TopicTable
from .shared import Shared
from .trimming import TrimChanges


def begin_aging(
    shared: Shared, removal: Removal, topics: TopicTable, delays: Delays, trimming: TrimChanges,
    subscriptions: Subscriptions,
) -> None:  # fmt: skip
    """Have retention go by the ages of topics, too."""
    ages = TopicAges(
        shared.clock, shared.lanes, topics.ages, shared.config.retention_ms, Outliving(delays, topics),
        subscriptions.used_up.save_ranges, trimming.trim_streams, subscriptions.removed.count_trimmed,
    )  # fmt: skip
    removal.before, removal.outlives = ages.look, ages.outlives
