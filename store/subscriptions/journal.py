"""The hidden stream of a subscription: its records; and a change whose record may be durable before it is applied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ...index.locks import if_free
from ..errors import OffsetOutOfRange, StoreCorrupt, StoreError, StoreUnreadable, copy_of
from ..format.hidden import CURSOR_KIND, hidden_parts, hidden_topic
from ..log.request import BlockingRequest, Request, pass_on
from ..log.streams import Stream
from .cursor import Cursor
from .parts import Parts

READ_MESSAGES = 4096
READ_BYTES = 4 << 20
LEAST_BYTES = 64 << 10  # records of less are not compacted
RECORD_COST_BYTES = 16  # about what a record takes beside its bytes


def journal_bytes(records: Sequence[bytes]) -> int:
    """About what records take in the log."""
    return sum(map(len, records)) + RECORD_COST_BYTES * len(records)


class Journal:
    """The records of one subscription. Any number of threads may append.

    Invariants:
        * the records from the stream's first offset on hold the whole state;
        * records are trimmed only after later, durable records repeat their content.
    """

    def __init__(self, parts: Parts, topic: str, name: str) -> None:
        self._parts = parts
        self._topic = hidden_topic(CURSOR_KIND, topic, name)
        self._stream: Stream | None = None  # None until it is known; then it never changes
        self._bytes = 0  # of the records since the last snapshot
        self._snapshot_bytes = 0
        self._counting = threading.Lock()

    @property
    def stream(self) -> Stream | None:
        """The hidden stream; None if nothing was ever written."""
        if self._stream is None:
            self._stream = self._parts.hidden.find(self._topic)
        return self._stream

    def load(self, cursor: Cursor, *, pass_damage: bool = False) -> None:
        """Read all records into a new cursor. Raises StoreCorrupt, StoreUnreadable, StoreUnusable.

        With `pass_damage` damaged records are passed over: messages that they acknowledged come again.
        """
        stream, reader = self.stream, self._parts.reads.reader
        if stream is None:
            return
        at, end = reader.bounds(stream) if pass_damage else reader.finder.whole_bounds(stream)
        while at < end:
            try:
                batch = reader.read_batch(stream, at, READ_MESSAGES, READ_BYTES)
            except OffsetOutOfRange as error:  # compacted meanwhile: the records from the new start on say as much
                at, end = max(at + 1, error.first), reader.bounds(stream)[1]
                continue
            except StoreCorrupt:
                if not pass_damage:
                    raise
                cursor.forget_parts()
                at += 1
                continue
            except OSError as error:
                raise StoreUnreadable(
                    f"the records of a subscription could not be read: {error}. Nothing is lost; try again."
                ) from error
            if not len(batch):
                break
            for data in batch.payloads():
                cursor.read(data)
            self._bytes += int(batch.lengths.sum()) + RECORD_COST_BYTES * len(batch)
            at = int(batch.offsets[-1]) + 1
        cursor.forget_parts()

    def append(self, records: Sequence[bytes]) -> None:
        """Write records; durable when it returns. Raises as an append does."""
        parts = self._parts
        stream = self.stream or parts.hidden.find_or_make(self._topic)
        if len(records) == 1:
            parts.check_open()
            _append_one(stream, records[0])
        else:
            parts.hidden.append(stream, records)
        self.count(records)

    def submit(self, records: Sequence[bytes]) -> Sequence[Request]:
        """Hand records of a durable subscription over. Returns their requests. Raises as an append does."""
        stream = self.stream
        assert stream is not None, "it is durable"
        requests = self._parts.hidden.submit(stream, records)
        self.count(records)
        return requests

    def put(self, request: Request) -> bool:
        """Hand a record over without waiting; False if it stands in line at the cap. Raises StoreError."""
        return request.stream.lane.queue.put(request, wait=False)

    def count(self, records: Sequence[bytes]) -> None:
        """Note records that were handed over."""
        self.count_bytes(journal_bytes(records))

    def count_bytes(self, size_bytes: int) -> None:
        """`count` of records that take so many bytes, by `journal_bytes`."""
        with self._counting:
            self._bytes += size_bytes

    @property
    def wants_compaction(self) -> bool:
        """Whether the records since the last snapshot are larger than it, and more than a few."""
        return self._bytes > LEAST_BYTES and self._bytes > self._snapshot_bytes

    @property
    def next_offset(self) -> int:
        """A lower bound of the offsets of all records that are handed over from now on."""
        stream = self._stream or self.stream
        return 0 if stream is None else stream.next_offset

    def compact(self, snapshot: Callable[[], tuple[Sequence[bytes], int]]) -> None:
        """Append a snapshot, then trim the records that it replaces. `snapshot` returns its records, and the first
        offset that it does not cover.

        The order matters: each record that is durable before `snapshot` is called was applied to the state before it
        was appended. So the snapshot covers these records, except those from its offset on; only covered ones are
        trimmed.
        """
        stream = self.stream
        if stream is None:
            return
        covered = self._parts.reads.reader.bounds(stream)[1]
        with self._counting:
            before = self._bytes
        records, left_out = snapshot()
        self._parts.hidden.append(stream, records)
        with self._counting:
            self._bytes -= before
            self._snapshot_bytes = journal_bytes(records)
        self._parts.trim(stream, min(covered, left_out))

    def forget(self) -> None:
        """Remove all records; the last of them says that the subscription is deleted."""
        stream = self.stream
        if stream is not None:
            self._parts.trim(stream, self._parts.reads.reader.bounds(stream)[1])
            self._bytes = self._snapshot_bytes = 0


def _append_one(stream: Stream, record: bytes) -> None:
    """Append one record as `Appender.append` does: the quickest way with many threads."""
    request = BlockingRequest()
    request.stream, request.data, request.size_bytes, request.extras = stream, record, len(record), None
    try:
        stream.lane.queue.put(request)
        request.lock.acquire()  # until the answer
        if request.chain:
            pass_on(request.chain)
    except BaseException:  # passed on; an interrupted thread leaves the line
        request.leave()
        raise
    if request.failure is not None:
        raise copy_of(request.failure)


def names_of(stream: Stream) -> tuple[str, str] | None:
    """(topic, name) of the subscription that a hidden stream belongs to; None if it belongs to none."""
    told = hidden_parts(stream.topic)
    return (told.names[0], told.names[1]) if told and told.kind == CURSOR_KIND and len(told.names) == 2 else None


class UnfinishedChange:
    """The mark of the rule "give, then take" (see `index.trackers.tracker`) for changes that have a record.

    A seek or a deletion ends the life or era that acknowledgements belong to. If its record was appended and the call
    was interrupted, the next caller makes the change once more, before an acknowledgement is written for the ended life
    or era. After an interrupt both outcomes are right: the change was made, or it was not.

    Attributes:
        change: a change that may be in the log and not yet applied, or None. It can be made twice.
    """

    def __init__(self, changing: threading.Lock, notify: Callable[[], None]) -> None:
        """`changing` is held by the thread that changes the subscription; `notify` has waiting consumers look again."""
        self.change: Callable[[], None] | None = None
        self._changing = changing
        self._notify = notify

    def make(self, change: Callable[[], None]) -> None:
        """Make a change: append its record, then apply it. `changing` is held."""
        if self.change is not change:
            self.make_rest()
        self.change = change
        try:
            change()
        except StoreError:  # its record is not there, or the store is poisoned
            self.change = None
            raise
        self.change = None

    def make_rest(self) -> bool:
        """Make the rest of an interrupted change; False if there was none. `changing` is held."""
        rest = self.change
        if rest is not None:
            self.make(rest)
        return rest is not None

    def finish(self) -> None:
        """Make the rest of an interrupted change. If another thread changes the subscription, that thread does it."""
        for _ in if_free(self._changing) if self.change is not None else ():
            try:
                self.make_rest()
            finally:
                self._changing.release()
            self._notify()
