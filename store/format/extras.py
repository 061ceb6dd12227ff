"""The optional columns of a message."""

from __future__ import annotations

from typing import NamedTuple


class Extras(NamedTuple):
    """The optional columns of one message: delivery time (ms since the epoch), key, properties as JSON; or None."""

    due_ms: int | None
    key: bytes | None
    properties: bytes | None  # JSON

    @property
    def size_bytes(self) -> int:
        """Bytes of key and properties."""
        return len(self.key or b"") + len(self.properties or b"")
