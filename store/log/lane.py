"""A lane as all see it: its streams, its segments, its queue and the memory of its newest bytes.

Readers, producers and `Stream` know no more of a lane than this. `WrittenLane` is one that this process appends to; a
lane of another process's log is a plain `Lane`, brought up by `live.lane`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import StoreConfig
from ..device.disk import Disk
from ..device.ring import Ring
from ..format.layout import GONE_TOPIC
from ..format.records import RECORDS_TOPIC
from ..segment.groups import Groups
from ..segment.held import HeldMemory
from ..segment.newest import NewestTimes
from ..segment.segment import Segment
from .offsets import NextOffsets
from .queue import RequestQueue
from .streams import NOT_DEFINED, Lows, Stream
from .write import View

if TYPE_CHECKING:
    from .request import Request


class Lane:
    """One append log, sealed and open segments alike.

    Other folders set no attribute but these: `view` where another process writes (`live.lane`); `view` and `offsets`
    where a commit is shown (`log.together`).
    """

    def __init__(
        self, index: int, folder: Path, disk: Disk, config: StoreConfig, ring: Ring, queue: RequestQueue[Request],
        memory: HeldMemory, offsets: Callable[[Lane], NextOffsets] | None = None,
    ) -> None:  # fmt: skip
        """`memory` is for readers of its segments, those of all lanes.

        `offsets`: of a lane that another process writes.
        """
        self.index = index
        self.folder, self.disk = folder, disk
        self.config = config
        self.ring = ring
        self.streams: list[Stream] = []  # by number
        self.hidden: list[Stream] = []  # those that users never see, without that of the records
        self.nobody = Stream(GONE_TOPIC, 0, self)  # in the place of those that are gone: see `gone`
        self.gone: list[int] = []  # their numbers, until a full footer has none of them
        self.queue = queue  # its requests
        self.lows = Lows(Stream(RECORDS_TOPIC, index, self))
        self.view = View()
        self.viewing = threading.Lock()  # held to replace the view
        self.offsets = NextOffsets() if offsets is None else offsets(self)  # after all that frames have, durable or not
        self.index_memory = memory
        self.newest = NewestTimes()  # of the sealed ones
        self.mapped: set[Segment] = set()  # its segments that readers copy from a mapping
        self.groups = Groups()

    @property
    def of_users(self) -> int:
        """How many streams have numbers, but for those that users never see."""
        return len(self.streams) - len(self.hidden) - (self.lows.records.number != NOT_DEFINED)

    def retire(self, stream: Stream) -> None:
        """Take the number from a stream that is gone; no stream gets it again."""
        self.streams[stream.number] = self.nobody
        self.gone.append(stream.number)
        stream.number, stream.low, stream.hidden = NOT_DEFINED, 0, 0

    def close(self) -> None:
        """Close all files and give the ring back."""
        for sealed in self.view.sealed:
            sealed.close()
        for opened in self.view.open:
            opened.segment.close()
        self.ring.close()
