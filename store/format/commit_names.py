"""The commits that a lane has, kept so that one more costs by what it adds: see `applied`."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Container, Mapping

from .applied import MOST_BYTES, AppliedCommit, Key, packed_section, unpack_applied


class CommitNames:
    """The commits of a lane, the one that came last at the end. One thread at a time changes it; any may `find`.

    Invariants:
        * what is packed is no longer than `MOST_BYTES`: the oldest names go first, and none before one that waits;
        * a commit costs by its own name. All names are put together when a footer wants them.

    Attributes:
        size_bytes: of `packed`.
    """

    def __init__(self, section: bytes = b"") -> None:
        """`section` is what a footer says. It is decoded when a commit is asked for or added."""
        self.size_bytes = len(section)
        self._section: bytes | None = section
        self._table: OrderedDict[Key, AppliedCommit] | None = None
        self._parts: dict[Key, bytes] = {}  # packed
        self._passing: set[Key] = set()  # those that are not remembered for good
        self._lock = threading.RLock()

    @property
    def table(self) -> Mapping[Key, AppliedCommit]:
        """The commits by their keys. Raises ValueError where the section is damaged."""
        with self._lock:
            return self._ready()

    def find(self, key: Key) -> AppliedCommit | None:
        """The commit of a key. Raises ValueError where the section is damaged."""
        with self._lock:  # `add` takes an entry away before it puts the next one there
            return self._ready().get(key)

    def _ready(self) -> OrderedDict[Key, AppliedCommit]:
        """The table. The lock is held: if two threads made one each, additions to one of them would be lost."""
        if self._table is None:
            table = OrderedDict(unpack_applied(self._section or b""))
            self._parts = {key: one.pack() for key, one in table.items()}
            self._passing = {key for key, one in table.items() if not one.is_kept}
            self._table = table
        return self._table

    @property
    def packed(self) -> bytes:
        """The section of a footer."""
        with self._lock:
            if self._section is None:
                self._section = packed_section([self._parts[key] for key in self._ready()])
            return self._section

    def copy(self) -> CommitNames:
        """A copy, to be changed apart from this one."""
        with self._lock:
            twin = copy.copy(self)
            if self._table is not None:
                twin._table = OrderedDict(self._table)
                twin._parts, twin._passing = dict(self._parts), set(self._passing)
            return twin

    def add(self, entry: AppliedCommit, waiting: Container[Key] = ()) -> None:
        """Note one more commit. Those that can have no replay any more are forgotten, unless they are `waiting`."""
        with self._lock:
            self._add(entry, waiting)

    def _add(self, entry: AppliedCommit, waiting: Container[Key]) -> None:
        table, key = self._ready(), entry.key
        for other in [one for one in list(self._passing) if one not in waiting]:
            self._drop(other)
        self._drop(key)
        table[key] = entry
        part = self._parts[key] = entry.pack()
        self.size_bytes += len(part)
        if not entry.is_kept:
            self._passing.add(key)
        while self.size_bytes > MOST_BYTES and (oldest := next(iter(table))) != key and oldest not in waiting:
            self._drop(oldest)
        self._section = None

    def _drop(self, key: Key) -> None:
        part = self._parts.pop(key, None)
        if part is not None:
            self._ready().pop(key)
            self._passing.discard(key)
            self.size_bytes -= len(part)
