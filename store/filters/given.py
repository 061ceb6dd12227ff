"""A user's filter, checked: as settings keep it, and as a condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ..errors import InvalidMessage, shown
from . import parser
from .conditions import Condition, Truth, all_of, is_among

Filter: TypeAlias = "str | Mapping[str, Iterable[str]]"
PlainFilter: TypeAlias = "str | Mapping[str, tuple[str, ...]]"


def check_filter(given: object) -> PlainFilter | None:
    """A user's filter: SQL as it is, or the wanted values of each property, sorted; None is none.

    Raises InvalidMessage; for SQL it says which character is wrong, also by `position`.
    """
    if given is None:
        return None
    if isinstance(given, str):
        text = str.__str__(given)  # of a subclass, a plain copy
        parser.condition_of(text)
        return text
    wanted = _items(given)
    if not wanted:
        raise InvalidMessage(
            f'filter is a mapping such as {{"tag": {{"a", "b"}}}}, a text such as "tag = \'a\'", or None, not '
            f"{shown(given)}"
        )
    plain = {}
    for name, values in wanted:
        each = _each(values)
        if not isinstance(name, str) or not each or not all(isinstance(value, str) for value in each):
            raise InvalidMessage(
                f"filter has a str and one or more str values for each property, as {{'tag': {{'a', 'b'}}}}, not "
                f"{shown(name)}: {shown(values)}"
            )
        plain[name] = tuple(sorted(set(each)))
    return dict(sorted(plain.items()))


def _items(given: object) -> list[tuple[Any, Any]]:
    """The items of a mapping; empty if it is none."""
    try:
        return list(given.items()) if isinstance(given, Mapping) else []
    except Exception:  # whatever a mapping of the user's raises
        return []


def _each(values: object) -> list[Any]:
    """The values as a list; empty if `values` is not a collection."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        return []
    try:
        return list(values)
    except Exception:  # whatever the error is: an array of no dimension claims that it can be iterated
        return []


def condition_of(checked: PlainFilter) -> Condition:
    """The condition of a checked filter. Raises InvalidMessage if it is not checked."""
    if isinstance(checked, str):
        return parser.condition_of(checked)
    parts: list[Truth] = [is_among(name, values) for name, values in checked.items()]
    return Condition(all_of(parts), frozenset(checked))
