"""Who is told of news of whole topics, as long as it listens: subscriptions of several topics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeAlias

from ..format.hidden import is_hidden

# Called with a topic. It waits for nothing and raises nothing; if it says False, it is not called again.
Listener: TypeAlias = "Callable[[str], bool]"
LEAST_MET = 1024  # so many names of topics are kept before those that are gone are looked for


class TopicListeners:
    """Listeners by topic, and those of topics that are new. Any number of threads may use it.

    A call costs by the topics that it tells of, and for a topic that is new by the listeners of new topics.

    Invariants:
        * a tuple of listeners never changes: it is replaced, so a thread that tells goes through the one that it has;
        * each topic of which messages come while somebody listens for new ones is told to it: at least once.
    """

    def __init__(self, exist: Callable[[str], bool]) -> None:
        """`exist` says whether the store has a topic."""
        self._exist = exist
        self._changing = threading.Lock()
        self._of_topic: dict[str, tuple[Listener, ...]] = {}
        self._of_new: tuple[Listener, ...] = ()
        self._met: set[str] = set()  # topics that were told as new
        self._most_met = LEAST_MET

    def __bool__(self) -> bool:
        """Whether somebody listens."""
        return bool(self._of_topic) or bool(self._of_new)

    def __contains__(self, topic: str) -> bool:
        """Whether somebody listens for a topic's news."""
        return topic in self._of_topic

    def listen(self, topic: str, listener: Listener) -> None:
        """Tell `listener` of a topic's news from now on: of messages, and of all that a look alone can find."""
        with self._changing:
            self._of_topic[topic] = (*self._of_topic.get(topic, ()), listener)

    def leave(self, topic: str, listener: Listener) -> None:
        """Tell it no more. A second call does no harm."""
        with self._changing:
            left = tuple(one for one in self._of_topic.get(topic, ()) if one != listener)
            if left:
                self._of_topic[topic] = left
            else:
                self._of_topic.pop(topic, None)

    def listen_for_new(self, listener: Listener) -> None:
        """Tell `listener` of topics that get messages and were not told as new yet. It has to ask for the others."""
        with self._changing:
            self._of_new = (*self._of_new, listener)

    def leave_new(self, listener: Listener) -> None:
        """Tell it no more. A second call does no harm."""
        with self._changing:
            self._of_new = tuple(one for one in self._of_new if one != listener)
            if not self._of_new:
                self._met = set()

    def tell(self, topics: Collection[str]) -> None:
        """These topics have messages that are new."""
        if self._of_new:
            self._tell_new([topic for topic in topics if topic not in self._met])
        self.look_at(topics)

    def look_at(self, topics: Collection[str]) -> None:
        """Something has become of these topics."""
        of_topic = self._of_topic
        for topic in topics:
            for listener in of_topic.get(topic, ()):
                if not listener(topic):
                    self.leave(topic, listener)

    def look_at_all(self) -> None:
        """Something may have become of any topic."""
        self.look_at(list(self._of_topic))

    def _tell_new(self, topics: Collection[str]) -> None:
        for topic in topics:
            if is_hidden(topic):
                continue
            for listener in self._of_new:
                if not listener(topic):
                    self.leave_new(listener)
            self._met.add(topic)  # last: after an error it is told again
        if len(self._met) > self._most_met:
            with self._changing:
                self._met = {topic for topic in list(self._met) if self._exist(topic)}
                self._most_met = max(LEAST_MET, 2 * len(self._met))
