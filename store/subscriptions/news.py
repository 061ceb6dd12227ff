"""Which queues of a topic got messages, and whose turn it is, so that a receive looks at no other queues."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from weakref import WeakValueDictionary

import numpy as np

from ..log.lane import Lane
from ..log.streams import StreamMap
from ..segment.open_table import OpenTable

FEW_MESSAGES = 64  # a loop over so few is quicker than numpy
Seen = tuple[int, int]  # the sequence of a segment, and the number of its messages that were looked at
FEW_QUEUES = 64  # a topic with so few queues looks at all of them: quicker than asking for news


class TopicNews:
    """The queues of one topic in the order of their newest messages, the newest last.

    Attributes:
        lost: news before this version was lost: any queue may have some.
        newest: the version of the newest message, or of a loss.
    """

    def __init__(self, lost: int) -> None:
        self.lost = self.newest = lost
        self.queues: OrderedDict[int, int] = OrderedDict()  # each queue's version

    def note(self, queue_id: int, version: int) -> None:
        """Note that a queue has a new message."""
        self.queues[queue_id] = version
        self.queues.move_to_end(queue_id)
        self.newest = version


class NewMessages:
    """Looks at each durable message once, for all topics in use. Any number of threads may use it.

    Invariant: the answers of `since` have each message that was visible when `since` was called. If a segment came that
    was not looked at while it was open, any queue of its lane's topics may have news.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: WeakValueDictionary[str, TopicNews] = WeakValueDictionary()
        self._seen: dict[int, Seen] = {}  # by lane
        self._version = 0

    def topic(self, name: str) -> TopicNews:
        """The news of a topic, kept as long as somebody references it."""
        with self._lock:
            found = self._topics.get(name)
            if found is None:
                found = self._topics[name] = TopicNews(self._version)
        return found

    def since(self, topic: TopicNews, lanes: Iterable[Lane], version: int) -> tuple[int, list[int] | None]:
        """(current version, the queues that got messages since a version, or None if any may have got some)."""
        with self._lock:
            for lane in lanes:
                self._catch_up(lane)
            if version < topic.lost:
                return self._version, None
            version_now, found = self._version, list[int]()
            for queue_id in reversed(topic.queues):
                if topic.queues[queue_id] <= version:
                    break
                found.append(queue_id)
        found.reverse()
        return version_now, found

    def newest(self, topic: TopicNews, lanes: Iterable[Lane]) -> int:
        """A number that changes when the topic may have more durable messages."""
        with self._lock:
            for lane in lanes:
                self._catch_up(lane)
            newest = topic.newest
        return newest

    def _catch_up(self, lane: Lane) -> None:
        view, seen = lane.view, self._seen.get(lane.index, (-1, 0))
        newest = seen
        if view.sealed:
            last = view.sealed[-1]
            newest = max(seen, (last.segment.sequence, last.record.entries))
        is_lost = newest != seen or lane.index not in self._seen
        for opened in view.open:
            at = (opened.segment.sequence, opened.table.visible)
            if at > newest:
                begin = newest[1] if at[0] == newest[0] else 0
                if at[1] > begin and not is_lost:
                    self._note(lane, opened.table, begin, at[1])
                newest = at
        if is_lost:
            self._version += 1
            for topic in list(self._topics.values()):
                topic.lost = topic.newest = self._version
        self._seen[lane.index] = newest  # last: after an interrupt they are looked at again

    def _note(self, lane: Lane, table: OpenTable, begin: int, end: int) -> None:
        numbers: Sequence[int]
        if end - begin <= FEW_MESSAGES:
            numbers = table.few_numbers(begin, end)
        else:
            numbers = np.unique(table.numbers_between(begin, end)).tolist()
        self._version += 1
        for number in numbers:
            stream = lane.streams[number]
            topic = self._topics.get(stream.topic)
            if topic is not None:
                topic.note(stream.queue_id, self._version)


class TopicLanes:
    """The lanes of a topic's queues. One thread at a time."""

    def __init__(self, streams: StreamMap, topic: str) -> None:
        self._streams = streams
        self._topic = topic
        self._listed: tuple[int, list[Lane]] = (0, [])  # the number of queues when they were listed, and their lanes

    def all(self) -> list[Lane]:
        """The lanes; none ever leaves this list."""
        queues = self._streams.topics.get(self._topic, {})
        if len(queues) != self._listed[0]:
            streams = list(queues.values())
            lanes = {stream.lane.index: stream.lane for stream in streams}
            self._listed = len(streams), [lanes[index] for index in sorted(lanes)]
        return self._listed[1]

    def removed(self) -> object:
        """A value that changes when messages of the topic may have been removed, by a trim or retention."""
        lanes = self.all()
        oldest = [lane.view.sealed[0].segment.sequence if lane.view.sealed else 0 for lane in lanes]
        return oldest, [lane.lows.shown for lane in lanes]


class ReadyQueues:
    """The queues that may have messages to read, in the order of their turns. One thread at a time.

    Invariant: a queue that is not here was read to its end and has had no news since; or it waits, and is added when it
    may go on.
    """

    def __init__(self, streams: StreamMap, news: NewMessages, topic: str) -> None:
        self.queues: OrderedDict[int, None] = OrderedDict()
        self._streams = streams
        self._news = news
        self._topic = topic
        self._of_topic = news.topic(topic)
        self._version = -1  # the version of the news taken so far; before the first one all queues are ready

    def newest(self, lanes: Iterable[Lane]) -> int:
        """A number that changes when the topic may have more durable messages."""
        return self._news.newest(self._of_topic, lanes)

    def find(self, lanes: Iterable[Lane]) -> int:
        """Add all queues that may have messages to read. Returns how many there are."""
        queues = self._streams.topics.get(self._topic, {})
        news, version = list(queues) if len(queues) <= FEW_QUEUES else None, -1
        if news is None:
            version, news = self._news.since(self._of_topic, lanes, self._version)
        self.add(list(queues) if news is None else news)
        self._version = version  # last: after an interrupt they are found again
        return len(self.queues)

    def add(self, queue_ids: Iterable[int]) -> None:
        """Add queues that may have messages to read, after the others."""
        ready = self.queues
        for queue_id in queue_ids:
            if queue_id not in ready:
                ready[queue_id] = None

    def add_all(self) -> None:
        """Add all queues of the topic."""
        self._version = -1

    def turn(self, count: int, skip: Callable[[Sequence[int]], None]) -> Iterator[int]:
        """Yield `count` queues, each once, as their turn comes; `skip` first passes over their delayed messages."""
        while count > 0:
            group = list(islice(self.queues, min(count, FEW_QUEUES)))
            count -= len(group)
            skip(group)
            yield from group

    def served(self, queue_id: int, *, is_over: bool) -> None:
        """A queue had its turn: it goes after the others, or out if it `is_over`, read to its end."""
        if is_over:
            del self.queues[queue_id]
        else:
            self.queues.move_to_end(queue_id)

    def stop(self, queue_id: int, *, by_key: bool) -> bool:
        """Take a queue out until it is added again; True if all have to wait."""
        if not by_key:
            del self.queues[queue_id]
        return by_key
