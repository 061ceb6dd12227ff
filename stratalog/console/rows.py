"""Messages of files, row by row: a row's fields are checked, and groups of rows become the columns of an append."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import typer

from ..perf.report.figures import counted
from ..store import Blobs, InvalidMessage, MessageColumns, StoreError
from .ends import code_of, complain

GROUP_BYTES, GROUP_ROWS = 1 << 20, 16_384
MOST_QUEUE_ID = (1 << 31) - 1
LATEST_MS = 1 << 62
NOT_KEPT = ("offset", "timestamp_ms")  # the store gives its own
FIELDS = ("topic", "queue_id", "data", "data_base64", "key", "key_base64", "properties", "deliver_at_ms", *NOT_KEPT)


class Row(NamedTuple):
    """A message to append. `number`: of its line or row in the input, from 1."""

    number: int
    topic: str
    queue_id: int
    data: bytes
    key: bytes | None = None
    properties: bytes | None = None
    deliver_at_ms: int | None = None


class Defaults(NamedTuple):
    """The values of rows that do not have their own. `delay_ms` counts from the moment at which a row is read."""

    topic: str | None = None
    queue_id: int | None = None
    key: bytes | None = None
    delay_ms: int | None = None


def row_of_json(number: int, line: bytes, defaults: Defaults, now_ms: int) -> Row:
    """The row of a line of JSON, as `cat --json` and `export` write them. Raises InvalidMessage."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"line {number} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidMessage(f"line {number} is no JSON object, but {shortened(found)}")
    try:
        return row_of(number, found, defaults, now_ms)
    except InvalidMessage as error:
        raise InvalidMessage(f"line {number}: {error}") from None


def row_of(number: int, found: dict[str, Any], defaults: Defaults, now_ms: int) -> Row:
    """The row of some fields. Raises InvalidMessage."""
    for name in found:
        if name not in FIELDS:
            raise InvalidMessage(f"there is no field {name!r} of messages; the fields are {', '.join(FIELDS)}")
    topic, queue_id = found.get("topic", defaults.topic), found.get("queue_id", defaults.queue_id)
    if topic is None:
        raise InvalidMessage("it has no topic; give --topic for rows without one")
    if not isinstance(topic, str):
        raise InvalidMessage(f"a topic is a string, not {shortened(topic)}")
    queue_id = 0 if queue_id is None else queue_id
    if type(queue_id) is not int or not 0 <= queue_id <= MOST_QUEUE_ID:
        raise InvalidMessage(f"a queue_id is a number from 0 to {MOST_QUEUE_ID}, not {shortened(queue_id)}")
    data, key = bytes_of_field("data", found), bytes_of_field("key", found)
    if data is None:
        raise InvalidMessage("it has no data")
    due = found.get("deliver_at_ms")
    if due is None and defaults.delay_ms is not None:
        due = now_ms + defaults.delay_ms
    if due is not None and (type(due) is not int or not 0 <= due < LATEST_MS):
        raise InvalidMessage(f"deliver_at_ms is a number of ms since the epoch, not {shortened(due)}")
    key = defaults.key if key is None else key
    return Row(number, topic, queue_id, data, key, properties_of(found.get("properties")), due)


def bytes_of_field(name: str, found: dict[str, Any]) -> bytes | None:
    """A field that is text, or base64 under another name. Raises InvalidMessage."""
    text, coded = found.get(name), found.get(f"{name}_base64")
    if text is not None and coded is not None:
        raise InvalidMessage(f"it has {name} and {name}_base64; give one of the two")
    try:
        if isinstance(text, bytes):
            return text
        if text is not None:
            return str.encode(text)
        return None if coded is None else base64.b64decode(str.encode(coded), validate=True)
    except (TypeError, UnicodeEncodeError, binascii.Error) as error:
        raise InvalidMessage(f"{name} is a string (UTF-8, or base64 as {name}_base64): {error}") from None


def properties_of(found: object) -> bytes | None:
    """Properties as the store has them. Raises InvalidMessage."""
    if found is None:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidMessage(f"properties are an object whose values are strings, not {shortened(found)}")
    return json.dumps(found, sort_keys=True).encode()


def shortened(value: object) -> str:
    """A value in an error."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def groups_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in groups that are worth a call each. If the rows end by an error, those before it come first."""
    group, size = list[Row](), 0
    try:
        for row in rows:
            group.append(row)
            size += len(row.data)
            if size >= GROUP_BYTES or len(group) >= GROUP_ROWS:
                yield group
                group, size = [], 0
    except InvalidMessage:
        if group:
            yield group
        raise
    if group:
        yield group


def columns_of(rows: list[Row]) -> MessageColumns:
    """Rows as the columns of an append."""
    streams: dict[tuple[str, int], int] = {}
    index = [streams.setdefault((row.topic, row.queue_id), len(streams)) for row in rows]
    times = [-1 if row.deliver_at_ms is None else row.deliver_at_ms for row in rows]
    return MessageColumns(
        list(streams), np.array(index, np.int64), np.array([len(row.data) for row in rows], np.int64),
        b"".join([row.data for row in rows]), Blobs.of([row.key for row in rows]),
        Blobs.of([row.properties for row in rows]), np.array(times, np.int64) if max(times) >= 0 else None,
    )  # fmt: skip


def refused(error: StoreError, rows: list[Row], done: int, *, what: str = "line") -> typer.Exit:
    """Say which row a store does not take, and how many were appended before. Returns the end of the command."""
    at = getattr(error, "row", None)
    sentence = str(error)
    if isinstance(at, int) and 0 <= at < len(rows):
        sentence = f"{what} {rows[at].number}: {sentence.removeprefix(f'row {at}: ')}"
    complain(f"{sentence}{before(done)}")
    return typer.Exit(code_of(error))


def before(done: int) -> str:
    """How many messages are in the store already, where a command stops."""
    return f" (before it: {counted(done, 'message')} appended)" if done else ""
