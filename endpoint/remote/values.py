"""Arguments and results as JSON: what they are is kept, so the store at the other end checks what the caller gave."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from stratalog import Delivery, InvalidMessage, Message
from stratalog.plans import ScanFilter

from .frames import BrokenFrame

_PLAIN = (str, int, float, bool, type(None))
MOST_DEPTH = 16


def to_json(value: object) -> Any:
    """A value for `json`. What is no number, text or list becomes an object with one name, which says what it is.

    Raises InvalidMessage for what cannot be sent.
    """
    if type(value) in _PLAIN:
        return value
    try:
        for kinds, make in _WAYS:
            if isinstance(value, kinds):
                return make(value)
    except RecursionError:
        raise InvalidMessage("a value is nested too deeply to be sent to the server of a store") from None
    raise InvalidMessage(f"a {type(value).__name__} cannot be sent to the server of a store")


def _listed(values: Iterable[object]) -> list[Any]:
    return [to_json(one) for one in values]


_WAYS: tuple[tuple[Any, Any], ...] = (
    (np.bool_, bool),
    (int | np.integer, int),
    (float | np.floating, float),
    (str, str.__str__),
    (bytes | bytearray | memoryview, lambda value: {"bytes": base64.b64encode(value).decode()}),
    (type(...), lambda value: {"unset": 0}),
    (ScanFilter, lambda value: {"scan": to_json(asdict(value))}),
    (Delivery, lambda value: {"delivery": [value.message.topic, value.receipt, value.subscription]}),
    (tuple, lambda value: {"tuple": _listed(value)}),
    (set | frozenset, lambda value: {"set": _listed(value)}),
    (Mapping, lambda value: {"map": [[to_json(name), to_json(one)] for name, one in value.items()]}),
    (np.ndarray, lambda value: to_json(value.tolist())),
    (Iterable, _listed),
)


def from_json(value: Any, depth: int = 0) -> Any:
    """The value again. Raises BrokenFrame."""
    if type(value) in _PLAIN:
        return value
    if depth > MOST_DEPTH:
        raise BrokenFrame("a value is nested too deeply")
    if isinstance(value, list):
        return [from_json(one, depth + 1) for one in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise BrokenFrame("a value is of no known kind")
    ((kind, given),) = value.items()
    if kind not in _BACK:
        raise BrokenFrame(f"a value is of no known kind: {kind!r}")
    try:
        return _BACK[kind](given, depth + 1)
    except (TypeError, ValueError) as error:
        raise BrokenFrame(f"a value cannot be read: {error}") from None


def _mapped(given: Any, depth: int) -> dict[Any, Any]:
    return {from_json(name, depth): from_json(one, depth) for name, one in given}


def delivery_of(topic: str, receipt: int, name: str) -> Delivery:
    """A delivery that says whose it is: as much of one as the store needs to acknowledge it."""
    return Delivery(Message(topic, 0, 0, b"", 0, None, None, None), 1, receipt, name)


_BACK: dict[str, Callable[[Any, int], Any]] = {
    "bytes": lambda given, depth: base64.b64decode(given, validate=True),
    "unset": lambda given, depth: ...,
    "scan": lambda given, depth: ScanFilter(**from_json(given, depth)),
    "delivery": lambda given, depth: delivery_of(*given),
    "tuple": lambda given, depth: tuple([from_json(one, depth) for one in given]),
    "set": lambda given, depth: {from_json(one, depth) for one in given},
    "map": _mapped,
}
