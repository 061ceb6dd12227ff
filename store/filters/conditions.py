"""Conditions over the properties and the key of one message, by the three-valued logic of SQL92.

An answer is True, False or None: None is SQL's "unknown". Each function here makes one answer of others. Conditions
that AND or OR joins are one flat function: a long filter is not a deep one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

Name = str | None  # of a property; None is the message's key
Values = Mapping[Name, str]  # of one message; a name that it has no value of is missing
Value = str | Decimal | bool | None
Answer = Callable[[Values], Value]
Truth = Callable[[Values], bool | None]

MOST_DIGITS = 400  # characters of a number; a longer text is no number
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_TRUTHS = {"true": True, "false": False}
EQUALITIES: Mapping[str, Callable[[Value, Value], bool]] = {"=": eq, "<>": ne, "!=": ne}
ORDERS: Mapping[str, Callable[[Decimal, Decimal], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
PARTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith,
}  # fmt: skip


class Condition(NamedTuple):
    """A whole filter.

    Attributes:
        truth: its answer for one message.
        names: what it asks for.
    """

    truth: Truth
    names: frozenset[Name]


def number_of(text: str) -> Decimal | None:
    """The number that a text is, exactly; None if it is none, as "", " 1", "0x1", "nan" and "1_000"."""
    if len(text) > MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    return Decimal(text)


def constant(value: Value) -> Answer:
    """Always the same value."""
    return lambda _: value


def value_of(name: Name) -> Answer:
    """The text of a property, or unknown."""
    return lambda values: values.get(name)


def as_number(name: Name) -> Answer:
    """The number that a property's text is, or unknown."""

    def answer(values: Values) -> Value:
        text = values.get(name)
        return None if text is None else number_of(text)

    return answer


def as_truth(name: Name) -> Answer:
    """TRUE and FALSE of the texts "true" and "false" in any case, or unknown."""

    def answer(values: Values) -> Value:
        text = values.get(name)
        return None if text is None else _TRUTHS.get(text.lower())

    return answer


def compared(compare: Callable[..., bool], left: Answer, right: Answer) -> Truth:
    """Two values compared; unknown if one of them is."""

    def truth(values: Values) -> bool | None:
        first, second = left(values), right(values)
        return None if first is None or second is None else compare(first, second)

    return truth


def has_part(compare: Callable[[str, str], bool], name: Name, part: str) -> Truth:
    """Whether a property's text contains another one, or begins or ends with it."""

    def truth(values: Values) -> bool | None:
        text = values.get(name)
        return None if text is None else compare(text, part)

    return truth


def is_among(name: Name, texts: Collection[str]) -> Truth:
    """Whether a property has one of some texts."""
    known = frozenset(texts)

    def truth(values: Values) -> bool | None:
        text = values.get(name)
        return None if text is None else text in known

    return truth


def is_missing(name: Name) -> Truth:
    """Whether a message has no such property: never unknown."""
    return lambda values: name not in values


def negated(inner: Truth) -> Truth:
    """NOT: unknown stays unknown."""

    def truth(values: Values) -> bool | None:
        found = inner(values)
        return None if found is None else not found

    return truth


def all_of(parts: Sequence[Truth]) -> Truth:
    """AND: false if one is false, else unknown if one is unknown."""
    return parts[0] if len(parts) == 1 else _joined(parts, decides=False)


def any_of(parts: Sequence[Truth]) -> Truth:
    """OR: true if one is true, else unknown if one is unknown."""
    return parts[0] if len(parts) == 1 else _joined(parts, decides=True)


def _joined(parts: Sequence[Truth], *, decides: bool) -> Truth:
    def truth(values: Values) -> bool | None:
        is_unknown = False
        for part in parts:
            found = part(values)
            if found is decides:
                return decides
            is_unknown |= found is None
        return None if is_unknown else not decides

    return truth
