"""For tests of programs that use the store: a simulated disk with power cuts, a checker of histories, settings.

disk = SimulatedDisk()
store = MessageStore.open(folder, disk=disk)
...                                       # append; remember what was acknowledged
left = disk.crash(random.Random(seed))    # the disk that a power cut at this moment leaves
store.close()
MessageStore.open(folder, disk=left)      # every acknowledged message is there

Begin with `disk`. `TunedConfig` and `TunedCacheConfig` have settings that a store otherwise chooses itself.

    its files           file, pages, memory
    damage to it        outside
    after a power cut   content, names, survivors
    errors              faults
    time                clock
    the checker         history
"""

from ..config import TunedCacheConfig, TunedConfig
from .clock import VirtualClock
from .disk import SimulatedDisk
from .faults import KINDS, Fault, Kind, Operation, PowerCut
from .file import SimulatedFile
from .history import History, Violation
from .memory import BusError
from .survivors import BLOCK_BYTES, MANNERS, SECTOR_BYTES, Manner

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
    "TunedCacheConfig",
    "TunedConfig",
    "Violation",
    "VirtualClock",
]
