"""The output of `stratalog cat` and `stratalog tail`: a message as a line of text, or as a line of JSON."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..perf.report.tables import plain
from ..store import Message
from .inspected import time_text


class Lines:
    """Prints messages, a line each: as text, or as JSON."""

    def __init__(self, out: IO[str], written: Callable[[Message], str]) -> None:
        self._out = out
        self._written = written
        self.flush = out.flush

    def write(self, messages: Iterable[Message]) -> None:
        """Print messages as they come."""
        for message in messages:
            self._out.write(f"{self._written(message)}\n")


@contextmanager
def lines_to(json_file: Path | None) -> Iterator[Lines]:
    """Lines of text on the standard output; with the option --json, lines of JSON there or in its file."""
    if json_file is None or str(json_file) == "-":
        yield Lines(sys.stdout, line_of if json_file is None else json_of)
        return
    with json_file.open("w") as out:
        yield Lines(out, json_of)


def line_of(message: Message) -> str:
    """A message as text: place, time, delivery time, key, properties, data."""
    time = time_text(message.timestamp_ms, exact=True)
    parts = [f"{plain(message.topic)}/{message.queue_id} {message.offset} {time}"]
    if message.deliver_at_ms is not None:
        parts.append(f"deliver_at={time_text(message.deliver_at_ms, exact=True)}")
    if message.key is not None:
        parts.append(f"key={shown(message.key)}")
    if message.properties is not None:
        parts += [plain(f"{name}={value}") for name, value in message.properties.items()]
    return f"{' '.join(parts)} {shown(message.data)}"


def shown(data: bytes) -> str:
    """Bytes as text; control characters and bytes that are not UTF-8 are escaped."""
    return plain(data.decode(errors="backslashreplace"))


def json_of(message: Message) -> str:
    """A message as JSON. Bytes that are not UTF-8 become base64, under another name; absent fields are left out.

    The JSON is ASCII, so every output takes it, also half a pair of surrogates, which a property may have.
    """
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
    }
    if message.deliver_at_ms is not None:
        row["deliver_at_ms"] = message.deliver_at_ms
    if message.key is not None:
        row.update(bytes_of("key", message.key))
    if message.properties is not None:
        row["properties"] = message.properties
    row.update(bytes_of("data", message.data))
    return json.dumps(row)


def bytes_of(name: str, data: bytes) -> dict[str, str]:
    """Bytes as a JSON field: text, or base64 under another name."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
