"""The common part of appending and reading: the streams, the lanes, and whether the store is open."""

from __future__ import annotations

import threading
from pathlib import Path

from ..config import StoreConfig
from ..device.clock import Clock
from ..errors import StoreClosed
from ..log.lane import Lane
from ..log.queue import RequestQueue
from ..log.streams import Stream, StreamMap


class OpenStore:
    """The base of `Appender` and `Fetcher`; `MessageStore` is both, and opens and closes."""

    def __init__(self, path: Path, config: StoreConfig, clock: Clock) -> None:
        self.path = path
        self.config = config
        self._clock = clock
        self._streams = StreamMap()
        self._topics = self._streams.topics
        self._naming = threading.Lock()
        self._closed = False
        self._why_closed = f"the store {path} was closed; open it again"
        self._lanes: list[Lane] = []
        self._queues: list[RequestQueue] = []

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child. A poisoned store is not closed: its reads go on."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(self._why_closed)

    def _found(self, topic: object, queue_id: object) -> Stream | None:
        """The stream of a name that may be none; True and 1.0 are not taken for 1."""
        if type(topic) is not str or type(queue_id) is not int:
            return None
        return self._streams.get(topic, queue_id)
