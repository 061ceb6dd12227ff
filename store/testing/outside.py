"""Events from outside of the store for a simulated disk: damage, bad sectors, programs that cut files."""

from __future__ import annotations

import threading
from pathlib import Path

from .content import Content
from .names import Names


class Outside:
    """The part of a simulated disk for tests; a store does not use it."""

    lock: threading.RLock
    _folders: dict[str, Names]

    def _named(self, path: Path) -> Content:
        raise NotImplementedError

    def has_waiting(self) -> bool:
        """True while a cut waits for a lease."""
        with self.lock:
            return any([file.cuts for names in self._folders.values() for file in names.now.values()])

    def flip(self, path: Path, position: int, bit: int = 0) -> None:
        """Damage one bit of a file, as written and as forced."""
        with self.lock:
            self._named(path).flip(position, bit)

    def put(self, path: Path, data: bytes) -> None:
        """Damage from outside: replace or make a file, written and forced at once."""
        with self.lock:
            self._settle(path).now[path.name] = self._folders[str(path.parent)].forced[path.name] = Content.of(data)

    def take_away(self, path: Path) -> None:
        """Damage from outside: remove a file for good at once."""
        with self.lock:
            self._named(path)
            names = self._settle(path)
            del names.now[path.name], names.forced[path.name]

    def _settle(self, path: Path) -> Names:
        names = self._folders[str(path.parent)]
        names.force()
        return names
