"""Timers, waiting operations and delayed entries: knows times, keys and positions, nothing of messages or topics.

A `TimingWheel` holds timers, and a `TimerThread` drives it with a clock. A `Purgatory` holds operations that wait for a
condition or for their time-out, whichever comes first. A `Tracker` knows which entries are delayed: `HeapTracker` and
`TimeBucketTracker` in memory, `BucketTracker` on disk.
"""

from .errors import BadEntry, TimersClosed, TrackerClosed, TrackerDamaged, TrackerFull
from .operation import DelayedOperation
from .purgatory import Purgatory
from .timer_thread import SYSTEM_CLOCK, Clock, SystemClock, TimerThread
from .timing_wheel import Timer, TimingWheel
from .trackers import BucketTracker, HeapTracker, TimeBucketTracker, Tracker, join_trackers

__all__ = [
    "SYSTEM_CLOCK",
    "BadEntry",
    "BucketTracker",
    "Clock",
    "DelayedOperation",
    "HeapTracker",
    "Purgatory",
    "SystemClock",
    "TimeBucketTracker",
    "Timer",
    "TimerThread",
    "TimersClosed",
    "TimingWheel",
    "Tracker",
    "TrackerClosed",
    "TrackerDamaged",
    "TrackerFull",
    "join_trackers",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.index: this folder is a part of the package stratalog")
