"""Filters in SQL92, as RocketMQ has them: a text becomes one condition.

    either      both {OR both}
    both        negation {AND negation}
    negation    {NOT} comparison
    comparison  operand [(= | <> | != | > | >= | < | <=) operand
                         | IS [NOT] NULL
                         | [NOT] BETWEEN operand AND operand
                         | [NOT] IN ( text {, text} )
                         | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text]
    operand     [+ | -] number | text | TRUE | FALSE | name | ( either )

A number is 12, 1.5, .5 or 1e3; a text stands in single quotes, and two of them in a row are one. A name is a word, or
anything in double quotes. Keywords may be in any case, names may not. Blanks and SQL's comments may stand between.

The words `tag` and `TAGS` are the property "tag", `key` and `KEYS` the message's key; in double quotes they are plain
names of properties. Only a text in quotes is compared as a text: >, >=, <, <= and BETWEEN compare numbers alone.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from ..errors import InvalidMessage
from .conditions import (
    EQUALITIES,
    MOST_DIGITS,
    ORDERS,
    PARTS,
    Answer,
    Condition,
    Name,
    Truth,
    Value,
    all_of,
    any_of,
    as_number,
    as_truth,
    compared,
    constant,
    has_part,
    is_among,
    is_missing,
    negated,
    number_of,
    value_of,
)
from .tokens import Token, Tokens, refuse

MOST_CHARACTERS = 8192
MOST_DEPTH = 32  # brackets inside each other: each takes some frames of Python's stack
_RESERVED: dict[str, Name] = {"tag": "tag", "TAGS": "tag", "key": None, "KEYS": None}
_KINDS = {
    "name": "a property", "number": "a number", "text": "a text", "bool": "TRUE or FALSE", "condition": "a condition",
}  # fmt: skip


def condition_of(text: str) -> Condition:
    """The condition that a text is. Raises InvalidMessage: its `position` says which character is wrong, from 1 on."""
    if len(text) > MOST_CHARACTERS:
        error = InvalidMessage(f"a filter has at most {MOST_CHARACTERS} characters, not {len(text)}; make it shorter")
        error.position, error.expected = MOST_CHARACTERS + 1, "the end"
        raise error
    return _Parser(text).whole()


class _Operand(NamedTuple):
    """A part of a filter.

    Attributes:
        kind: "name", "number", "text", "bool" (a constant) or "condition".
        at: where it begins.
        value: of a constant.
        name: of a name.
        truth: of a condition, and of a "bool".
    """

    kind: str
    at: int
    value: Value = None
    name: Name = None
    truth: Truth | None = None


class _Parser:
    """Reads a text once from left to right; a method a rule. Each leaves the next word to its caller."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0
        self._names: set[Name] = set()

    def whole(self) -> Condition:
        """All of the text."""
        truth = _truth(self._either())
        if self._tokens.next.kind != "end":
            self._refuse("AND, OR or the end")
        return Condition(truth, frozenset(self._names))

    def _either(self) -> _Operand:
        first = self._both()
        if self._tokens.next.kind != "OR":
            return first
        parts = [_truth(first)]
        while self._tokens.take_if("OR"):
            parts.append(_truth(self._both()))
        return _condition(first.at, any_of(parts))

    def _both(self) -> _Operand:
        first = self._negation()
        if self._tokens.next.kind != "AND":
            return first
        parts = [_truth(first)]
        while self._tokens.take_if("AND"):
            parts.append(_truth(self._negation()))
        return _condition(first.at, all_of(parts))

    def _negation(self) -> _Operand:
        at, count = self._tokens.next.at, 0
        while self._tokens.take_if("NOT"):
            count += 1
        inner = self._comparison()
        if not count:
            return inner
        truth = _truth(inner)
        return _condition(at, negated(truth) if count % 2 else truth)

    def _comparison(self) -> _Operand:
        left, kind = self._operand(), self._tokens.next.kind
        if kind in EQUALITIES:
            return _condition(left.at, self._equal(left, self._tokens.take()))
        if kind in ORDERS:
            self._tokens.take()
            return _condition(left.at, compared(ORDERS[kind], _number(left), _number(self._operand())))
        if self._tokens.take_if("IS"):
            is_negated = self._tokens.take_if("NOT")
            self._tokens.want("NULL")
            truth = is_missing(_property(left))
        else:
            is_negated = self._tokens.take_if("NOT")
            found = self._of_operand(left)
            if found is None and is_negated:
                self._refuse("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            if found is None and left.truth is None and self._tokens.next.kind in ("name", "quoted", "number", "text"):
                self._refuse("a comparison: =, <>, >, >=, <, <=, IS, BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            if found is None:
                return left
            truth = found
        return _condition(left.at, negated(truth) if is_negated else truth)

    def _of_operand(self, left: _Operand) -> Truth | None:
        """What may stand after NOT; None if something else is next."""
        kind = self._tokens.next.kind
        if kind == "BETWEEN":
            return self._between(left)
        if kind == "IN":
            return self._among(left)
        if kind in PARTS:
            name = _property(left)
            self._tokens.take()
            return has_part(PARTS[kind], name, self._tokens.want("text").value)
        return None

    def _between(self, left: _Operand) -> Truth:
        number = _number(left)
        self._tokens.take()
        low = self._operand()
        least = _number(low)
        self._tokens.want("AND")
        high = self._operand()
        most = _number(high)
        # `_number` has refused all but numbers.
        if low.value is not None and high.value is not None and low.value > high.value:  # type: ignore[operator]
            refuse(low.at, "a number that is not larger than the one after AND", str(low.value))
        return all_of([compared(ORDERS[">="], number, least), compared(ORDERS["<="], number, most)])

    def _among(self, left: _Operand) -> Truth:
        name = _property(left)
        self._tokens.take()
        self._tokens.want("(")
        texts = [self._tokens.want("text").value]
        while self._tokens.take_if(","):
            texts.append(self._tokens.want("text").value)
        if not self._tokens.take_if(")"):
            self._refuse(", or )")
        return is_among(name, texts)

    def _equal(self, left: _Operand, sign: Token) -> Truth:
        right = self._operand()
        kinds, compare = {left.kind, right.kind}, EQUALITIES[sign.value]
        if "number" in kinds:
            return compared(compare, _number(left), _number(right))
        if "bool" in kinds:
            return compared(compare, _boolean(left), _boolean(right))
        return compared(compare, _text(left), _text(right))

    def _operand(self) -> _Operand:
        token = self._tokens.next
        if token.kind in ("+", "-", "number"):
            return self._signed()
        if token.kind == "(":
            return self._bracket()
        if token.kind == "text":
            self._tokens.take()
            return _Operand("text", token.at, token.value)
        if token.kind in ("TRUE", "FALSE"):
            self._tokens.take()
            value = token.kind == "TRUE"
            return _Operand("bool", token.at, value, truth=lambda _: value)
        if token.kind not in ("name", "quoted"):
            self._refuse("a property, a number, a text, TRUE, FALSE or (")
        self._tokens.take()
        name = _RESERVED.get(token.value, token.value) if token.kind == "name" else token.value
        self._names.add(name)
        return _Operand("name", token.at, name=name)

    def _signed(self) -> _Operand:
        first = self._tokens.next
        sign = self._tokens.take().value if first.kind != "number" else ""
        token = self._tokens.want("number")
        value = number_of(sign + token.value)
        if value is None:
            refuse(token.at, f"a number of at most {MOST_DIGITS} characters, with at most 4 after e", token.shown())
        return _Operand("number", first.at, value)

    def _bracket(self) -> _Operand:
        at = self._tokens.take().at
        self._depth += 1
        if self._depth > MOST_DEPTH:
            refuse(at, f"at most {MOST_DEPTH} brackets inside each other", "one more")
        inner = self._either()
        self._tokens.want(")")
        self._depth -= 1
        return inner._replace(at=at)

    def _refuse(self, expected: str) -> NoReturn:
        refuse(self._tokens.next.at, expected, self._tokens.next.shown())


def _condition(at: int, truth: Truth) -> _Operand:
    return _Operand("condition", at, truth=truth)


def _truth(operand: _Operand) -> Truth:
    if operand.truth is None:
        refuse(operand.at, "a condition, such as tag = 'paid'", f"{_KINDS[operand.kind]} alone")
    return operand.truth


def _property(operand: _Operand) -> Name:
    if operand.kind != "name":
        refuse(operand.at, "a property", _KINDS[operand.kind])
    return operand.name


def _number(operand: _Operand) -> Answer:
    if operand.kind not in ("number", "name"):
        refuse(operand.at, "a number or a property", _KINDS[operand.kind])
    return as_number(operand.name) if operand.kind == "name" else constant(operand.value)


def _boolean(operand: _Operand) -> Answer:
    if operand.kind not in ("bool", "name"):
        refuse(operand.at, "TRUE, FALSE or a property", _KINDS[operand.kind])
    return as_truth(operand.name) if operand.kind == "name" else constant(operand.value)


def _text(operand: _Operand) -> Answer:
    if operand.kind not in ("text", "name"):
        refuse(operand.at, "a property, a number, a text, TRUE or FALSE", _KINDS[operand.kind])
    return value_of(operand.name) if operand.kind == "name" else constant(operand.value)
