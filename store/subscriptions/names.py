"""The names of the subscriptions that may exist, and the topics that their dead letters go to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from ..errors import InvalidMessage
from ..log.lane import Lane
from .journal import names_of
from .parts import Parts

Name = tuple[str, str]  # (topic, name)


class Names:
    """Reads each hidden stream's name once. Any number of threads may use it.

    Invariants:
        * a subscription that exists is here;
        * a deleted one is dropped when it is found, so no call costs by the number of deleted ones. In a store that
          another process writes all stay, as their writer may make them again.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._names: dict[Name, None] = {}
        self._looked: dict[int, tuple[Lane, int]] = {}  # by lane: this many hidden streams of it were looked at

    def __contains__(self, name: Name) -> bool:
        self._catch_up()
        return name in self._names

    def __iter__(self) -> Iterator[Name]:
        """All current names, sorted."""
        self._catch_up()
        return iter(sorted(self._names))

    def of(self, topic: str) -> list[str]:
        """The names of a topic's subscriptions, sorted."""
        return [name for of_topic, name in self if of_topic == topic]

    def add(self, name: Name) -> None:
        """Add a subscription that is about to be made, or to be looked into."""
        self._names[name] = None

    def drop(self, name: Name) -> None:
        """Drop a subscription that was deleted."""
        if self._parts.may_write:
            self._names.pop(name, None)

    def _catch_up(self) -> None:
        with self._lock:
            for lane in self._parts.hidden.lanes:
                known_of, looked = self._looked.get(lane.index, (lane, 0))
                looked = looked if known_of is lane else 0  # a reader's lane may have been replaced: see `live.lane`
                fresh = lane.hidden[looked:]
                for stream in fresh:
                    name = names_of(stream)
                    if name is not None and not (self._parts.may_write and stream.is_empty):  # else it was deleted
                        self._names[name] = None
                self._looked[lane.index] = lane, looked + len(fresh)  # last: after an interrupt it is done again


class DeadLetterChains:
    """The topics of a store, linked by the dead letters of their subscriptions. Any number of threads may use it.

    Invariant: a chain of links that was made here never returns to its beginning.
    """

    def __init__(self, names: Names, dead_letters_of: Callable[[str, str], str | None]) -> None:
        """`dead_letters_of(topic, name)` gives the topic of a subscription's dead letters."""
        self._names = names
        self._dead_letters_of = dead_letters_of
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, topic: str, dead_letter_topic: str | None) -> Iterator[Callable[[], None]]:
        """Hold the links while a subscription of a topic is made or changed. Yields the check to call.

        The check raises InvalidMessage if dead letters would come back to the topic.
        """
        with nullcontext() if dead_letter_topic is None else self._lock:
            yield partial(self._check, topic, dead_letter_topic)

    def _check(self, topic: str, dead_letter_topic: str | None) -> None:
        if dead_letter_topic is None:
            return
        left, seen = [dead_letter_topic], {dead_letter_topic}
        while left:
            at = left.pop()
            for name in self._names.of(at):
                leads_to = self._dead_letters_of(at, name)
                if leads_to == topic:
                    raise InvalidMessage(
                        f"dead letters of {topic!r} would come back to it without end: they lead to {at!r}, whose "
                        f"subscription {name!r} sends its own to {topic!r}; name another dead_letter_topic"
                    )
                if leads_to is not None and leads_to not in seen:
                    seen.add(leads_to)
                    left.append(leads_to)
