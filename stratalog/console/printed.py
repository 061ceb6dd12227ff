"""How `stratalog cat` writes a message: a line of text, or a line of JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

from ..perf.report.tables import plain
from ..store import Message
from .inspected import time_text


def line_of(message: Message) -> str:
    """Where it is, when it was put into the log, what came with it, and its data."""
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
    """Bytes as text: what is no UTF-8, or would steer the terminal, as its escape."""
    return plain(data.decode(errors="backslashreplace"))


def json_of(message: Message) -> str:
    """One object: bytes that are no UTF-8 stand as base64 under another name; what a message has not is left out.

    In ASCII: any output takes it, also half a pair of surrogates, which a property may have.
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
    """Bytes as JSON can have them."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
