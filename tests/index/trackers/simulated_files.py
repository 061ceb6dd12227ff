"""Files in memory that can be left in any state that a crash may leave.

The fault model. Bytes that were not forced are lost, or kept in part, or kept in part with wrong bytes at their end:
for each file by itself. Names that were made, replaced or removed since the folder was last forced are as before or as
after: each by itself, but a rename is never half done. Forced bytes under forced names are never harmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class _File:
    """The bytes of a file, and how many of them are forced."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.forced = len(data)
        self.is_closed = False


class SimulatedFiles:
    """A folder.

    Attributes:
        steps: how many changes were asked for.
        read_bytes: by all reads.
        on_step: called with each change, when a crash may leave what was there before it, or a part of it.
        fail_at: the change that raises OSError in place of being made.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.fail_at: int | None = None
        self.steps = 0
        self.read_bytes = 0
        self.on_step: Callable[[], object] | None = None
        self._now: dict[str, _File] = {}
        self._forced: dict[str, _File] = {}

    def _step(self) -> None:
        self.steps += 1
        if self.on_step is not None:
            self.on_step()
        if self.steps == self.fail_at:
            raise OSError(28, "no space left")

    def names(self) -> list[str]:
        """Of all files."""
        return sorted(self._now)

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Behind what is there; a crash meanwhile may leave it written, as it is not forced."""
        file = self._now.get(name)
        if file is None:
            file = self._now[name] = _File()
        assert not file.is_closed, f"{name} is written to after it was forced"
        file.data += data
        self._step()

    def flush(self, name: str) -> None:
        """The bytes so far are safe; a crash comes before that."""
        self._step()
        self._now[name].forced = len(self._now[name].data)

    def force(self, name: str) -> None:
        """The bytes are safe; a crash comes before that."""
        self._step()
        file = self._now[name]
        file.forced, file.is_closed = len(file.data), True

    def force_folder(self) -> None:
        """The names are safe; a crash comes before that."""
        self._step()
        self._forced = dict(self._now)

    def rename(self, name: str, to: str) -> None:
        """A crash may leave either name."""
        self._step()
        assert self._now[name].is_closed, f"{name} is renamed before it was forced"
        self._now[to] = self._now.pop(name)

    def remove(self, name: str) -> None:
        """A crash may leave it."""
        self._step()
        self._now.pop(name, None)

    def read(self, name: str, at: int, size: int) -> bytes:
        """What is there."""
        data = bytes(self._file(name).data[at : at + size])
        self.read_bytes += len(data)
        return data

    def size(self, name: str) -> int:
        """In bytes."""
        return len(self._file(name).data)

    def _file(self, name: str) -> _File:
        if name not in self._now:
            raise FileNotFoundError(name)
        return self._now[name]

    def close(self) -> None:
        """Nothing is open."""

    def flip(self, name: str, at: int) -> None:
        """Change one bit of a file."""
        self._now[name].data[at] ^= 1 << self._chance.randrange(8)

    def cut(self, name: str, size: int) -> None:
        """Leave the first bytes of a file."""
        del self._now[name].data[size:]

    def drop(self, name: str) -> None:
        """The file is gone."""
        del self._now[name]

    def crashed(self, seed: int) -> SimulatedFiles:
        """What a crash leaves now, by the seed."""
        chance = random.Random(seed)
        after = SimulatedFiles(seed)
        for name in sorted({*self._now, *self._forced}):
            kept = [one.get(name) for one in (self._now, self._forced)]
            if (file := chance.choice(kept)) is not None:
                end = chance.randint(file.forced, len(file.data))
                data = file.data[:end]
                if end > file.forced and chance.random() < 0.5:
                    torn = chance.randint(file.forced, end)
                    data[torn:] = bytes(end - torn)
                after._now[name] = after._forced[name] = _File(bytes(data))
                after._now[name].is_closed = True
        return after
