"""The names of the subscriptions that may be there, and where their dead letters lead."""

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
        * one that is found to be deleted is dropped, so no call costs by how many were deleted. Only of a store that
          another process writes all stay, as their writer may make them again.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._names: dict[Name, None] = {}
        self._looked: dict[int, tuple[Lane, int]] = {}  # by lane: at so many hidden streams of this object

    def __contains__(self, name: Name) -> bool:
        self._catch_up()
        return name in self._names

    def __iter__(self) -> Iterator[Name]:
        """All of now, sorted."""
        self._catch_up()
        return iter(sorted(self._names))

    def of(self, topic: str) -> list[str]:
        """Those of a topic, sorted."""
        return [name for of_topic, name in self if of_topic == topic]

    def add(self, name: Name) -> None:
        """A subscription is about to be made, or is looked into."""
        self._names[name] = None

    def drop(self, name: Name) -> None:
        """It was deleted."""
        if self._parts.may_write:
            self._names.pop(name, None)

    def _catch_up(self) -> None:
        with self._lock:
            for lane in self._parts.hidden.lanes:
                known_of, looked = self._looked.get(lane.index, (lane, 0))
                looked = looked if known_of is lane else 0  # a reader's lane may be another one: see `live.lane`
                fresh = lane.hidden[looked:]
                for stream in fresh:
                    name = names_of(stream)
                    if name is not None and not (self._parts.may_write and stream.is_empty):  # else it was deleted
                        self._names[name] = None
                self._looked[lane.index] = lane, looked + len(fresh)  # last: an interrupt has them looked at again


class DeadLetterChains:
    """The topics of a store as its subscriptions lead from one to the next. Any number of threads may use it.

    Invariant: no chain that was made here goes round.
    """

    def __init__(self, names: Names, dead_letters_of: Callable[[str, str], str | None]) -> None:
        """`dead_letters_of` says where a subscription, by topic and name, sends its dead letters."""
        self._names = names
        self._dead_letters_of = dead_letters_of
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, topic: str, dead_letter_topic: str | None) -> Iterator[Callable[[], None]]:
        """For whoever makes or changes a subscription of a topic, which no other thread does meanwhile: the check.

        It raises InvalidMessage if the dead letters would come back.
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
