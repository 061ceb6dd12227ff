"""The settings of all topics of a store: found, changed, forgotten, and kept when retention comes to their records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from ..errors import InvalidTopic, StoreCorrupt, StoreError, StoreUnreadable, StoreUnusable
from ..format.arrays import Int64s
from ..format.hidden import TOPIC_KIND, hidden_topic
from ..log.hidden_streams import HiddenNames, HiddenStreams
from ..log.lane import Lane
from ..log.streams import Stream
from ..read.reader import Reader
from ..segment.sealed import SealedSegment
from .full import FullTopics
from .known_ages import KnownAges
from .settings import NOT_CONFIGURED, UNREADABLE, TopicSettings
from .ttl import TopicTtl

MOST_KNOWN = 100_000  # topics whose settings are remembered, also of those that have none


class TopicTable:
    """The settings of the topics of one store. Any number of threads may use it.

    A topic's settings are a record, see `format.topic_settings`. Nothing is read before it is asked for.

    Invariants:
        * the newest record of a topic's hidden stream has all of its settings; older ones are trimmed once it is
          durable. Where all are trimmed, the topic is not configured;
        * `_known` has what the newest records say: a change takes its topic out before it appends, and `_lock` is held
          by whoever changes or reads a record. A store that another process writes knows nothing;
        * a topic whose change was interrupted is in `_unsure`: its record may still be on its way to the log. Until the
          next change, its settings are read each time.

    Attributes:
        full: the topics that take no message for now.
        turn: how often settings have changed. A queue that was checked is made under the lock of names, and only if
            this is the same as before the check.
    """

    def __init__(self, hidden: HiddenStreams, reader: Callable[[], Reader], *, may_write: bool) -> None:
        """`reader` gives the store's reader, which is another one once the store has its caches."""
        self.turn = 0
        self._hidden = hidden
        self._reader = reader
        self._may_write = may_write
        self._names = HiddenNames(hidden, TOPIC_KIND, may_write=may_write)
        self._known: dict[str, TopicSettings] = {}
        self._keeping: dict[str, TopicSettings] | None = None  # see `keeping`; replaced as a whole
        self._ages = KnownAges(
            lambda: [names[0] for names in self._names], lambda topic: self._or_keeping(topic).retention_ms
        )
        self.full = FullTopics()
        self._unsure: set[str] = set()
        self._ttls: WeakValueDictionary[str, TopicTtl] = WeakValueDictionary()
        self._lock = threading.RLock()  # a finalizer may append while its thread changes a topic

    def settings(self, topic: str) -> TopicSettings:
        """The settings of a topic, whose name was checked. Raises StoreCorrupt, StoreUnreadable, StoreUnusable."""
        known = self._known.get(topic)
        if known is None:
            with self._lock:
                known = self._read(topic)
                if self._may_write and topic not in self._unsure:
                    if len(self._known) >= MOST_KNOWN:
                        self._known.clear()  # each is read again when it is asked for
                    self._known[topic] = known
        return known

    def __contains__(self, topic: str) -> bool:
        """Whether a topic is configured."""
        stream = self._stream(topic)
        return stream is not None and not self._is_empty(stream)

    def __iter__(self) -> Iterator[str]:
        """The configured topics, sorted."""
        return (names[0] for names in self._names if names[0] in self)

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Raise InvalidTopic if a topic does not have a queue; also as `settings` does."""
        queues = self.settings(topic).queues
        if queues is not None and queue_id >= queues:
            raise InvalidTopic(
                f"the topic {topic!r} has {queues} queues, 0 to {queues - 1}, and so no queue {queue_id}; give "
                f"`configure_topic` a larger number"
            )

    def keeping(self) -> Mapping[str, TopicSettings]:
        """The topics whose messages outlive retention, each with its settings. The first call reads all settings.

        A topic whose settings cannot be read may be one of them, so it is: `UNREADABLE`. Raises StoreUnreadable.
        """
        known = self._keeping
        if known is None:
            with self._lock:
                found = {topic: self._or_keeping(topic) for topic in self}
                known = {topic: one for topic, one in found.items() if one.keep != NOT_CONFIGURED.keep}
                if not self._unsure:
                    self._keeping = known
        return known

    def ttl_of(self, topic: str) -> TopicTtl:
        """The `ttl_ms` of a topic, now and after each change."""
        with self._lock:
            found = self._ttls.get(topic)
            if found is None:
                found = self._ttls[topic] = TopicTtl(partial(self._ttl_ms, topic))
        return found

    def _ttl_ms(self, topic: str, ttl: TopicTtl) -> int | None:
        with self._lock:  # no change is under way
            found = self._or_keeping(topic).ttl_ms
            ttl.is_used = found is not None or topic in self._unsure
        return found

    def ages(self) -> Mapping[str, int] | None:
        """The topics that have a `retention_ms`, which is their value; None until the settings of all were read, which
        takes several calls.

        A topic whose settings cannot be read may have a long one, so it has the longest. Raises StoreUnreadable.
        """
        with self._lock:
            return self._ages.all(self._unsure)

    def _or_keeping(self, topic: str) -> TopicSettings:
        try:
            return self.settings(topic)
        except (StoreCorrupt, StoreUnusable):
            return UNREADABLE

    def change(self, topic: str, settings: TopicSettings, check: Callable[[], None]) -> None:
        """Give a topic other settings; durable when it returns. Raises as an append does, and what `check` raises: from
        its call on nobody makes a queue of the topic by the settings before.
        """
        with self._changing(topic):
            with self._hidden.naming:
                self.turn += 1
            check()
            self._names.add((topic,))
            self._write(self._hidden.find_or_make(hidden_topic(TOPIC_KIND, topic)), settings.pack())
            self._known[topic] = settings
            self._ages.note(topic, settings.retention_ms)

    @contextmanager
    def _changing(self, topic: str) -> Iterator[None]:
        """The record of a topic changes. After an interrupt, the record says what holds."""
        with self._lock:
            before = self._keeping
            self._unsure.add(topic)
            self._known.pop(topic, None)
            self._keeping = None
            if (ttl := self._ttls.get(topic)) is not None:
                ttl.is_used = True
            try:
                yield
            except StoreError:  # it was refused, or the store is poisoned
                self._unsure.discard(topic)
                if before is not None and not self._unsure:
                    with suppress(StoreError):  # else all are read again
                        self._keeping = _changed(before, topic, self._or_keeping(topic))
                raise
            self._unsure.discard(topic)
            if before is not None and not self._unsure:
                self._keeping = _changed(before, topic, self._known.get(topic, NOT_CONFIGURED))

    def forget(self, topic: str) -> bool:
        """Remove the settings of a topic, durably; False if it has none. Raises as a trim does."""
        with self._changing(topic):
            stream = self._stream(topic)
            if stream is None or self._is_empty(stream):
                return False
            self._hidden.trim(stream, stream.next_offset)
            self._names.drop((topic,))
            self._ages.note(topic, None)
        return True

    def may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether retention may remove a segment. The settings in it are written again first."""
        for number in self._numbers_in(lane, oldest).tolist():
            stream = lane.streams[number]
            begin, count = oldest.first_of(number)
            if count and begin + count > stream.low:
                with self._lock:
                    self._write_again(stream)
                if begin + count > stream.low:
                    return False
        return True

    def _numbers_in(self, lane: Lane, sealed: SealedSegment) -> Int64s:
        """The streams of settings that have a record in a segment; all of the lane's, if the segment is damaged."""
        streams = [stream for (topic,) in self._names if (stream := self._stream(topic)) is not None]
        mine = np.array([stream.number for stream in streams if stream.lane is lane and stream.number >= 0], np.int64)
        try:
            footer = sealed.footer
        except StoreCorrupt:
            return mine
        return np.intersect1d(footer.numbers[footer.counts > 0], mine)

    def _write_again(self, stream: Stream) -> None:
        newest = self._newest(stream)
        if newest is not None:
            self._write(stream, newest)

    def _write(self, stream: Stream, record: bytes) -> None:
        """Append a record, and remove those before it."""
        (offset,) = self._hidden.append(stream, [record]).tolist()
        with suppress(StoreError):  # the record holds without it, and the next one tries again
            self._hidden.trim(stream, offset)

    def _stream(self, topic: str) -> Stream | None:
        return self._hidden.find(hidden_topic(TOPIC_KIND, topic))

    def _is_empty(self, stream: Stream) -> bool:
        try:
            first, end = self._reader().finder.whole_bounds(stream)
        except StoreCorrupt:  # there may be settings: to read them says so
            return False
        except OSError as error:
            raise _unreadable(error) from error
        return first >= end

    def _read(self, topic: str) -> TopicSettings:
        stream = self._stream(topic)
        newest = None if stream is None else self._newest(stream)
        if newest is None:
            return NOT_CONFIGURED
        try:
            return TopicSettings.unpack(newest)
        except ValueError as error:
            raise StoreUnusable(f"the settings of the topic {topic!r} cannot be used here: {error}") from error

    def _newest(self, stream: Stream) -> bytes | None:
        """The newest record of a topic; None if there is none."""
        reader = self._reader()
        try:
            first, end = reader.finder.whole_bounds(stream)
            found = reader.read(stream, end - 1, 1, 1) if first < end else []
        except OSError as error:
            raise _unreadable(error) from error
        return found[0].data if found else None


def _changed(keeping: dict[str, TopicSettings], topic: str, settings: TopicSettings) -> dict[str, TopicSettings]:
    """The topics that keep their messages, after a change of one: the same dict if that makes no difference."""
    keeps = settings.keep != NOT_CONFIGURED.keep
    if keeping.get(topic) == (settings if keeps else None):
        return keeping
    others = {name: one for name, one in keeping.items() if name != topic}
    return {**others, topic: settings} if keeps else others


def _unreadable(error: OSError) -> StoreUnreadable:
    return StoreUnreadable(f"the settings of a topic could not be read: {error}. Nothing is lost; try again.")
