"""Reads of a whole store in parts: one process makes a plan, and any process reads a part."""

from .store import (
    LogOvertaken,
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
    "LogOvertaken",
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
