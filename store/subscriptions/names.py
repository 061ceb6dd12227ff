"""The names of the subscriptions that may be there."""

from __future__ import annotations

import threading
from collections.abc import Iterator

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
