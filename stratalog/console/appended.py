"""`stratalog append`: lines of the standard input become messages, as they come."""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Callable, Iterator

from ..perf.report.figures import counted
from ..store import BatchTicket, InvalidMessage, MessageStore, StoreError
from .ends import complain
from .rows import Defaults, Row, before, columns_of, groups_of, refused, row_of_json

READ_BYTES = 1 << 20
MOST_LINE_BYTES = 64 << 20
ON_THEIR_WAY = 8  # groups that were handed over: they share forces

RowOfLine = Callable[[int, bytes, Defaults, int], Row]


def text_row(number: int, line: bytes, defaults: Defaults, now_ms: int) -> Row:
    """The row of a line whose bytes are the data."""
    due = None if defaults.delay_ms is None else now_ms + defaults.delay_ms
    return Row(number, defaults.topic or "", defaults.queue_id or 0, line, defaults.key, None, due)


def lines_of(stream: io.BufferedReader) -> Iterator[list[bytes]]:
    """The lines that are there, without their newlines, each time there are some; it waits for no more of them.

    The last line needs no newline. Raises InvalidMessage for a line that is too long for any message.
    """
    rest: list[bytes] = []
    while data := stream.read1(READ_BYTES):
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            lines = b"".join([*rest, head]).split(b"\n")
            rest = [tail] if tail else []
            yield lines
        else:
            rest.append(data)
            if sum(map(len, rest)) > MOST_LINE_BYTES:
                raise InvalidMessage(f"a line is longer than {MOST_LINE_BYTES >> 20} MiB, and no message is")
    if rest:
        yield [b"".join(rest)]


class Appending:
    """Appends rows to an open store, some groups on their way at once. `done`: messages that are durable."""

    def __init__(self, store: MessageStore) -> None:
        self.done = 0
        self._store = store
        self._sent: deque[tuple[BatchTicket, list[Row]]] = deque()

    def take(self, stream: io.BufferedReader, row_of_line: RowOfLine, defaults: Defaults) -> None:
        """Append all lines of a stream; those before a wrong one are appended. Raises typer.Exit, StoreError."""
        number = 0
        try:
            for lines in lines_of(stream):
                for group in groups_of(_rows_of(lines, number, row_of_line, defaults)):
                    self._send(group)
                number += len(lines)
            self.settle()
        except InvalidMessage as error:
            self.settle()
            raise InvalidMessage(f"{error}{before(self.done)}") from None
        except KeyboardInterrupt:
            self.settle()
            complain(f"{counted(self.done, 'message')} appended")
            raise

    def _send(self, rows: list[Row]) -> None:
        try:
            ticket = self._store.submit_columns(*columns_of(rows))
        except StoreError as error:
            at = getattr(error, "row", None)
            if isinstance(at, int) and 0 < at < len(rows):
                self._send(rows[:at])
            self.settle()
            raise refused(error, rows, self.done) from error
        self._sent.append((ticket, rows))
        while len(self._sent) > ON_THEIR_WAY:
            self._settle_one()

    def settle(self) -> None:
        """Wait until all that was sent is durable."""
        while self._sent:
            self._settle_one()

    def _settle_one(self) -> None:
        ticket, rows = self._sent[0]
        ticket.result()
        self._sent.popleft()
        self.done += len(rows)


def _rows_of(lines: list[bytes], number: int, row_of_line: RowOfLine, defaults: Defaults) -> Iterator[Row]:
    """The rows of some lines, of which `number` came before. Blank lines are no JSON lines."""
    now_ms = time.time_ns() // 1_000_000
    for at, line in enumerate(lines, number + 1):
        if row_of_line is text_row or line.strip():
            yield row_of_line(at, line, defaults, now_ms)


ROWS: dict[str, RowOfLine] = {"text": text_row, "json": row_of_json}
