"""Errors over the wire: they come out as the class, with the text and the attributes, that they had in the store."""

from __future__ import annotations

from typing import Any

import stratalog
from stratalog import StoreError

from .values import from_json, to_json


def failure_to_json(error: StoreError) -> dict[str, Any]:
    """An error as JSON: its class, its text and its attributes, as far as they can be sent."""
    attributes = {}
    for name, value in vars(error).items():
        try:
            attributes[name] = to_json(value)
        except StoreError:  # it cannot be sent; the text says what the error is
            continue
    return {"kind": type(error).__name__, "text": str(error), "attributes": attributes}


def failure_from_json(given: dict[str, Any]) -> StoreError:
    """The error again. A class that this version does not know becomes a StoreError."""
    kind = getattr(stratalog, str(given.get("kind")), None)
    if not (isinstance(kind, type) and issubclass(kind, StoreError)):
        kind = StoreError
    text = str(given.get("text"))
    error = kind.__new__(kind, text)
    error.args = (text,)
    for name, value in given.get("attributes", {}).items():
        setattr(error, name, from_json(value))
    return error
