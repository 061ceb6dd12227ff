"""Timers and waiting operations: knows times and keys, nothing of messages, files or topics.

A `TimingWheel` holds timers one by one, a `BulkTimingWheel` holds them in columns; a `TimerThread` drives either with a
clock. A `Purgatory` holds operations that wait for a condition or for their time-out, whichever comes first.
"""

from .bulk_timing_wheel import BulkTimingWheel
from .clock import SYSTEM_CLOCK, Clock, SystemClock
from .errors import TimersClosed
from .operation import DelayedOperation
from .purgatory import Purgatory
from .timer_thread import TimerThread
from .timing_wheel import Timer, TimingWheel

__all__ = [
    "SYSTEM_CLOCK",
    "BulkTimingWheel",
    "Clock",
    "DelayedOperation",
    "Purgatory",
    "SystemClock",
    "Timer",
    "TimerThread",
    "TimersClosed",
    "TimingWheel",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.index: this folder is a part of the package stratalog")
