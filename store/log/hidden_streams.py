"""Hidden streams of a store: finding, making, appending, and their names. What they are: see `format.hidden`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from ..format.hidden import hidden_parts, is_hidden
from ..format.records import StreamLow
from .lane import Lane
from .request import RowGroup, cut
from .streams import Stream, StreamMap, lane_of
from .trims import trim_requests

QUEUE_ID = 0  # each hidden topic has one stream

Names = tuple[str, ...]


class HiddenStreams:
    """The streams that parts of a store (cursors, delays) append their records to. Any number of threads may use it.

    Read a stream with `Reader`, by the `Stream` itself: its messages have offsets, and it can be trimmed, like others.
    """

    def __init__(
        self,
        streams: StreamMap,
        lanes: Sequence[Lane],
        naming: threading.Lock,
        check_open: Callable[[], None],
        limit_bytes: int,
    ) -> None:
        """`naming` is the lock of all that make streams, `limit_bytes` the size of a frame."""
        self._streams = streams
        self.lanes = lanes
        self.naming = naming
        self._check_open = check_open
        self._limit_bytes = limit_bytes

    def find(self, topic: str) -> Stream | None:
        """The stream of a hidden topic; None if it was never made."""
        return self._streams.hidden.get(topic)

    def find_or_make(self, topic: str, lane: Lane | None = None) -> Stream:
        """The stream of a hidden topic, made at first use: in that lane, which its topic names, or in any.

        It is durable with its first message.
        """
        assert is_hidden(topic)
        with self.naming:
            self._check_open()
            stream = self._streams.hidden.get(topic)
            if stream is None:
                index = lane_of(topic, QUEUE_ID, len(self.lanes)) if lane is None else lane.index
                stream = Stream(topic, QUEUE_ID, self.lanes[index])
                self._streams.add(stream)
        return stream

    def of_kind(self, kind: str) -> list[Stream]:
        """The streams of one kind, sorted by topic."""
        found = sorted(dict(self._streams.hidden).items())
        return [stream for topic, stream in found if (parts := hidden_parts(topic)) and parts.kind == kind]

    def append(self, stream: Stream, datas: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Append messages, in their order, in frames of their own or with others: (n,) their offsets.

        Returns when all are durable. Raises as `MessageStore.append_batch` does; some may then be durable.
        """
        groups = self.submit(stream, datas)
        for group in groups:
            group.result()
        return np.concatenate([group.offsets for group in groups]) if groups else np.empty(0, np.int64)

    def submit(self, stream: Stream, datas: Sequence[bytes]) -> list[RowGroup]:
        """Hand messages over: requests whose `result` waits until they are durable."""
        groups = self.requests(stream, datas)
        for group in groups:
            stream.lane.queue.put(group)
        return groups

    def requests(self, stream: Stream, datas: Sequence[bytes]) -> list[RowGroup]:
        """Requests for messages, not handed over yet: for a caller that must still have them after an interrupt."""
        self._check_open()
        if not datas:
            return []
        return cut([stream] * len(datas), list(datas), list(map(len, datas)), self._limit_bytes)

    def trim(self, stream: Stream, before_offset: int) -> None:
        """Trim the messages before an offset. Returns when that is durable; raises as `MessageStore.trim` does."""
        requests = trim_requests(stream.lane.lows, [(stream, StreamLow(before_offset))], self._limit_bytes)
        for request in requests:
            request.stream.lane.queue.put(request)
        for request in requests:
            request.result()


class HiddenNames:
    """The names of hidden streams of one kind: what a store has of it. Any number of threads may use it.

    A stream that says nothing any more is passed over when it is found, and so no call costs by the number of those. In
    a store that another process writes all stay, as their writer may use them again.

    Invariant: `_by_first` has the names of `_names` by the first of each; both change under `_lock`.
    """

    def __init__(self, hidden: HiddenStreams, kind: str, *, may_write: bool) -> None:
        self._hidden = hidden
        self._kind = kind
        self._may_write = may_write
        self._lock = threading.RLock()  # a finalizer may come here while its thread is inside
        self._names: dict[Names, None] = {}
        self._by_first: dict[str, dict[Names, None]] = {}
        self._looked: dict[int, tuple[Lane, int]] = {}  # by lane: this many hidden streams of it were looked at

    def __contains__(self, names: Names) -> bool:
        self._catch_up()
        return names in self._names

    def __iter__(self) -> Iterator[Names]:
        """All names, sorted."""
        self._catch_up()
        return iter(sorted(self._names))

    def __len__(self) -> int:
        self._catch_up()
        return len(self._names)

    def oldest(self, count: int) -> list[Names]:
        """So many names at the most: those that were found first."""
        self._catch_up()
        return list(islice(self._names, count))  # one step: it makes no other object

    def of(self, first: str) -> list[Names]:
        """The names that begin with this one, sorted: without a look at others."""
        self._catch_up()
        return sorted(self._by_first.get(first, ()))

    def add(self, names: Names) -> None:
        """Add names whose stream is about to be made, or to be used again."""
        with self._lock:
            self._names[names] = None
            self._by_first.setdefault(names[0], {})[names] = None

    def drop(self, names: Names) -> None:
        """Drop names whose stream says nothing any more."""
        with self._lock:
            if self._may_write and names in self._names:
                del self._names[names]
                of_first = self._by_first[names[0]]
                del of_first[names]
                if not of_first:
                    del self._by_first[names[0]]

    def _catch_up(self) -> None:
        with self._lock:
            for lane in self._hidden.lanes:
                known_of, looked = self._looked.get(lane.index, (lane, 0))
                looked = looked if known_of is lane else 0  # a reader's lane may have been replaced: see `live.lane`
                fresh = lane.hidden[looked:]
                for stream in fresh:
                    parts = hidden_parts(stream.topic)
                    if parts is not None and parts.kind == self._kind and not (self._may_write and stream.is_empty):
                        self.add(parts.names)
                self._looked[lane.index] = lane, looked + len(fresh)  # last: after an interrupt it is done again
