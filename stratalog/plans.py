"""Reads of a whole store in parts: a plan is made once, and each of its parts may be read by another process."""

from .store import (
    LogPosition,
    ScanBatch,
    ScanFilter,
    ScanLimit,
    ScanPart,
    ScanPlan,
    ScanPlanner,
    StreamTable,
    plan_scan,
    read_part,
)

__all__ = [
    "LogPosition",
    "ScanBatch",
    "ScanFilter",
    "ScanLimit",
    "ScanPart",
    "ScanPlan",
    "ScanPlanner",
    "StreamTable",
    "plan_scan",
    "read_part",
]
