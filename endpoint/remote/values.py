"""Arguments and results as JSON: what they are is kept, so the store at the other end checks what the caller gave."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from stratalog import InvalidMessage
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
    for kinds, make in _WAYS:
        if isinstance(value, kinds):
            return make(value)
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
    try:
        match kind:
            case "bytes":
                return base64.b64decode(given, validate=True)
            case "unset":
                return ...
            case "scan":
                return ScanFilter(**from_json(given, depth + 1))
            case "tuple":
                return tuple([from_json(one, depth + 1) for one in given])
            case "set":
                return {from_json(one, depth + 1) for one in given}
            case "map":
                return {from_json(name, depth + 1): from_json(one, depth + 1) for name, one in given}
    except (TypeError, ValueError, binascii.Error) as error:
        raise BrokenFrame(f"a value cannot be read: {error}") from None
    raise BrokenFrame(f"a value is of no known kind: {kind!r}")
