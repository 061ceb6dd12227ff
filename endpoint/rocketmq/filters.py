"""Filters of clients, as the store takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..wire import Code
from ..wire.codes import FilterType
from .statuses import Refused
from .translating import TAG

Filter: TypeAlias = "str | Mapping[str, tuple[str, ...]] | None"


def filter_of(expression: Any) -> Filter:
    """A filter for `subscribe`: tags ("a || b", "*"), or SQL; None wants all messages. Raises Refused."""
    text = expression.expression.strip()
    if expression.type == FilterType.SQL:
        return text or None
    if text in ("", "*"):
        return None
    tags = tuple(sorted({tag for part in text.split("||") if (tag := part.strip())}))
    if not tags or any("|" in tag for tag in tags):
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"tags are written as a || b, not as {text!r}")
    return None if "*" in tags else {TAG: tags}
