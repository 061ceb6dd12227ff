"""The checks of a message before it is accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidMessage, InvalidTopic, MessageTooLarge, shown
from ..format.extras import Extras
from ..format.message_ids import MAX_ID_BYTES
from ..log.streams import check_name

Payload = bytes | bytearray | memoryview


def too_large(size_bytes: int, limit_bytes: int) -> MessageTooLarge:
    """The error for a message over `max_message_bytes`."""
    return MessageTooLarge(
        f"the message has {size_bytes} bytes, with key and properties, and max_message_bytes is {limit_bytes}; "
        f"cut it, or raise that setting"
    )


def as_bytes(data: object, limit_bytes: int) -> bytes:
    """A copy of what may change in the caller's hands, unless it is too large anyway."""
    if isinstance(data, bytes | bytearray | memoryview):
        try:
            view = memoryview(data)
            if view.nbytes > limit_bytes:
                raise too_large(view.nbytes, limit_bytes)
            return view.tobytes()  # not `bytes(data)`, which a subclass may answer as it likes
        except ValueError:
            raise InvalidMessage("data is a memoryview that was released") from None
    raise InvalidMessage(f"data is bytes, a bytearray or a memoryview, not {type(data).__name__}")


def check_rows(rows: Sequence[object], limit_bytes: int) -> list[tuple[str, int, bytes]]:
    """The rows of a batch, (topic, queue id, data), one by one, with plain names and bytes.

    Raises InvalidTopic, InvalidMessage or MessageTooLarge, which names the first row that cannot be, also in its `row`.
    """
    checked = []
    for index, row in enumerate(rows):
        try:
            topic, queue_id, data = _parts(row)
            name = check_name(topic, queue_id)
            plain = data if type(data) is bytes else as_bytes(data, limit_bytes)
            if len(plain) > limit_bytes:
                raise too_large(len(plain), limit_bytes)
        except (InvalidTopic, InvalidMessage, MessageTooLarge) as error:
            raise error.in_row(index) from error.__cause__
        checked.append((*name, plain))
    return checked


def _parts(row: Any) -> tuple[object, object, object]:
    """Topic, queue id and data of a row that may be anything. Raises InvalidMessage."""
    kind = type(row)
    if not hasattr(kind, "__getitem__") or isinstance(row, Mapping | str):
        raise InvalidMessage(f"a row is a (topic, queue id, data) tuple, not {kind.__name__}")
    try:
        topic, queue_id, data = row
    except Exception as error:  # of a row of another length, of a view that was released: whatever its type raises
        raise InvalidMessage(f"a row is a (topic, queue id, data) tuple, not {shown(row)}") from error
    return topic, queue_id, data


def check_extras(deliver_at_ms: int | None, key: bytes | None, properties: Mapping[str, str] | None) -> Extras:
    """The optional columns of a message, checked; raises InvalidMessage."""
    if isinstance(deliver_at_ms, np.integer):
        deliver_at_ms = int(deliver_at_ms)
    if deliver_at_ms is not None and (type(deliver_at_ms) is not int or not 0 <= deliver_at_ms < 1 << 62):
        raise InvalidMessage(f"deliver_at_ms is ms since the epoch, 0 to 2**62 - 1, not {shown(deliver_at_ms)}")
    if key is not None and not isinstance(key, bytes):
        raise InvalidMessage(f"key is bytes, not {type(key).__name__}")
    if key is not None and type(key) is not bytes:
        key = memoryview(key).tobytes()  # a subclass may have another length than it has bytes
    packed = None
    if properties is not None:
        if not isinstance(properties, Mapping) or not all(
            isinstance(name, str) and isinstance(value, str) for name, value in properties.items()
        ):
            raise InvalidMessage("properties is a mapping of str to str")
        packed = json.dumps(dict(properties), separators=(",", ":")).encode()
    return Extras(deliver_at_ms, key, packed)


def check_id(message_id: object) -> bytes:
    """A message id as UTF-8; raises InvalidMessage."""
    if type(message_id) is not str and not isinstance(message_id, str):
        raise InvalidMessage(f"message_id is a str, not {type(message_id).__name__}")
    try:
        data = str.encode(message_id)
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"the message_id cannot be written as UTF-8: {error}") from None
    if not 0 < len(data) <= MAX_ID_BYTES:
        raise InvalidMessage(f"a message_id has 1 to {MAX_ID_BYTES} bytes of UTF-8, this one has {len(data)}")
    return data


def check_counts(**values: int) -> tuple[int, ...]:
    """The values as ints, numpy's among them; raises InvalidMessage for what is no count."""
    for name, value in values.items():
        if type(value) is not int and not isinstance(value, np.integer):
            raise InvalidMessage(f"{name} is an int, not {type(value).__name__}")
        if value < 0:
            raise InvalidMessage(f"{name} is not negative, but {shown(value)} is")
    return tuple(map(int, values.values()))
