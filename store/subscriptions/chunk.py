"""Messages of a queue that were read ahead."""

from __future__ import annotations

from dataclasses import dataclass

from ..read.message import Message, MessageBatch, make_message


@dataclass(slots=True)
class Chunk:
    """Messages of a queue that were read and not given out, from `begin` on."""

    batch: MessageBatch
    begin: int = 0
    rows: list[tuple[int, int, int, int]] | None = None  # begin and end in the buffer, offset, time; once asked for

    def messages(self, begin: int, end: int) -> list[Message]:
        """Some of its messages as objects, from lists: quicker than from columns, one at a time."""
        batch = self.batch
        if self.rows is None:
            begins, ends = batch.positions.tolist(), (batch.positions + batch.lengths).tolist()
            self.rows = list(zip(begins, ends, batch.offsets.tolist(), batch.times_ms.tolist(), strict=True))
        name, buffer, extras = batch.stream_names[0], batch.buffer, batch.extras
        return [
            make_message(*name, offset, bytes(buffer[low:high]), time_ms, None if extras is None else extras[at])
            for at, (low, high, offset, time_ms) in enumerate(self.rows[begin:end], begin)
        ]

    @property
    def size_bytes(self) -> int:
        return len(self.batch.buffer)
