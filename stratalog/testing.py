"""For tests of programs that use the store: a simulated disk with power cuts, a clock, a checker of histories."""

from .store.testing import (
    BLOCK_BYTES,
    KINDS,
    MANNERS,
    SECTOR_BYTES,
    BusError,
    Fault,
    History,
    Kind,
    Manner,
    Operation,
    PowerCut,
    SimulatedDisk,
    SimulatedFile,
    Violation,
    VirtualClock,
)

__all__ = [
    "BLOCK_BYTES",
    "KINDS",
    "MANNERS",
    "SECTOR_BYTES",
    "BusError",
    "Fault",
    "History",
    "Kind",
    "Manner",
    "Operation",
    "PowerCut",
    "SimulatedDisk",
    "SimulatedFile",
    "Violation",
    "VirtualClock",
]
