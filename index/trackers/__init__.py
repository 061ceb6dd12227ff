"""Trackers of delayed entries: positions and the times at which they are due; nothing of messages or topics.

A `HeapTracker` is the plain reference, a `TimeBucketTracker` holds millions in memory, and a `BucketTracker` holds
more on disk. All of them are a `Tracker`.
"""

from .bucket_tracker import BucketTracker
from .heap_tracker import HeapTracker
from .shelf import join_trackers
from .time_buckets import TimeBucketTracker
from .tracker import Tracker

__all__ = ["BucketTracker", "HeapTracker", "TimeBucketTracker", "Tracker", "join_trackers"]
