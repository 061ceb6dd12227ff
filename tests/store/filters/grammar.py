"""Filters drawn at random as trees, with their text and their answer by the rules of SQL92.

This is a second evaluator, written by the grammar in the documentation, that shares nothing with the first one: a tree
is never parsed, its numbers are fractions, and each rule of three-valued logic is a table.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Truth = bool | None
Message = tuple[Mapping[str, str], bytes | None]  # properties and key
NAMES = ("a", "b_1", "$c", "tag", "Größe", "and so on", 'with "quotes"', "key", "TAGS", "select", "")
RESERVED = {"tag": "tag", "TAGS": "tag", "key": None, "KEYS": None}
TEXTS = ("", "a", "b", "it's", "''", "red", "RED", "true", "FALSE", "1", "01", "1.0", "-3", "1e2", "x y", "ß", "é", "%")
NUMBERS = ("0", "1", "1.0", "01", "2.5", ".5", "7.", "1e2", "1E-2", "100", "3L", "99999999999999999999", "0.1")
AND = {(True, True): True, (True, False): False, (True, None): None, (False, True): False, (False, False): False,
       (False, None): False, (None, True): None, (None, False): False, (None, None): None}  # fmt: skip
OR = {(True, True): True, (True, False): True, (True, None): True, (False, True): True, (False, False): False,
      (False, None): None, (None, True): True, (None, False): None, (None, None): None}  # fmt: skip
NOT: dict[Truth, Truth] = {True: False, False: True, None: None}
A_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)


@dataclass(frozen=True)
class Name:
    """A name as it is written: a word, or in double quotes."""

    spelled: str
    is_quoted: bool

    def value(self, message: Message) -> str | None:
        properties, key = message
        name = self.spelled if self.is_quoted else RESERVED.get(self.spelled, self.spelled)
        if name is not None:
            return properties.get(name)
        try:
            return None if key is None else key.decode()
        except UnicodeDecodeError:
            return None


def fraction(text: str | None) -> Fraction | None:
    """The number that a text is."""
    return Fraction(text) if text is not None and A_NUMBER.fullmatch(text) else None


class Draw:
    """Draws filters: each call returns (text, level, answer); the level says where brackets are needed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    # -- the text -------------------------------------------------------------------------------------

    def _blank(self) -> str:
        return self._chance.choice((" ", " ", "  ", "\n", "\t", "/* ' ( */", ' -- "\n'))

    def _word(self, keyword: str) -> str:
        cased = self._chance.choice((keyword, keyword.lower(), keyword.capitalize()))
        return self._blank() + cased + self._blank()

    def _sign(self, sign: str) -> str:
        return self._chance.choice(("", " ", "\n")) + sign + self._chance.choice(("", " ", "\t"))

    def _name(self) -> tuple[str, Name]:
        spelled = self._chance.choice(NAMES)
        is_word = re.fullmatch(r"[^\W\d][\w$]*|\$[\w$]*", spelled) is not None
        if is_word and self._chance.random() < 0.7:
            return spelled, Name(spelled, is_quoted=False)
        return '"' + spelled.replace('"', '""') + '"', Name(spelled, is_quoted=True)

    def _quoted(self) -> tuple[str, str]:
        text = self._chance.choice(TEXTS)
        return "'" + text.replace("'", "''") + "'", text

    def _number(self) -> tuple[str, Fraction]:
        sign = self._chance.choice(("", "", "", "-", "+", "- "))
        digits = self._chance.choice(NUMBERS)
        return sign + digits, Fraction(sign.strip() + digits.rstrip("L"))

    def _bracketed(self, text: str) -> str:
        return f"({self._chance.choice(('', ' '))}{text}{self._chance.choice(('', ' '))})"

    # -- the rules ------------------------------------------------------------------------------------

    def whole(self, depth: int) -> tuple[str, Callable[[Message], Truth]]:
        """A filter and its answer."""
        text, _, answer = self._any(depth)
        return text, answer

    def _any(self, depth: int) -> tuple[str, int, Callable[[Message], Truth]]:
        rule = self._chance.randrange(3) if depth else 3
        if rule == 0:
            return self._chain("OR", 0, OR, depth)
        if rule == 1:
            return self._chain("AND", 1, AND, depth)
        if rule == 2:
            text, answer = self._at_least(2, depth)
            return self._word("NOT").lstrip(" ") + text, 2, lambda message: NOT[answer(message)]
        text, answer = self._comparison()
        return text, 3, answer

    def _at_least(self, level: int, depth: int) -> tuple[str, Callable[[Message], Truth]]:
        """A part that may stand where only rules of this level may: in brackets if it must be, and at times if not."""
        text, found, answer = self._any(depth - 1)
        if found < level or self._chance.random() < 0.2:
            text = self._bracketed(text)
        return text, answer

    def _chain(
        self, keyword: str, level: int, table: dict[tuple[Truth, Truth], Truth], depth: int
    ) -> tuple[str, int, Callable[[Message], Truth]]:
        parts = [self._at_least(level + 1, depth) for _ in range(self._chance.randint(2, 4))]
        text = parts[0][0]
        for part, _ in parts[1:]:
            text += self._word(keyword) + part

        def answer(message: Message) -> Truth:
            found = parts[0][1](message)
            for _, part in parts[1:]:
                found = table[found, part(message)]
            return found

        return text, level, answer

    def _comparison(self) -> tuple[str, Callable[[Message], Truth]]:
        rules = [
            self._equal_texts, self._equal_numbers, self._ordered, self._between, self._among, self._part,
            self._missing, self._truth, self._constant,
        ]  # fmt: skip
        return self._chance.choice(rules)()

    def _constant(self) -> tuple[str, Callable[[Message], Truth]]:
        value = self._chance.random() < 0.5
        return self._chance.choice((str(value), str(value).upper())), lambda _: value

    def _equality(self) -> tuple[str, Callable[[Any, Any], bool]]:
        sign = self._chance.choice(("=", "<>", "!="))
        return self._sign(sign), (lambda x, y: x == y) if sign == "=" else (lambda x, y: x != y)

    def _pair(
        self, sides: list[tuple[str, Callable[[Message], Any]]], sign: str, compare: Callable[[Any, Any], bool]
    ) -> tuple[str, Callable[[Message], Truth]]:
        self._chance.shuffle(sides)
        (first, left), (second, right) = sides

        def answer(message: Message) -> Truth:
            one, other = left(message), right(message)
            return None if one is None or other is None else compare(one, other)

        return first + sign + second, answer

    def _equal_texts(self) -> tuple[str, Callable[[Message], Truth]]:
        spelled, name = self._name()
        sides: list[tuple[str, Callable[[Message], Any]]] = [(spelled, name.value)]
        if self._chance.random() < 0.7:
            quoted, text = self._quoted()
            sides.append((quoted, lambda _: text))
        else:
            other_spelled, other = self._name()
            sides.append((other_spelled, other.value))
        return self._pair(sides, *self._equality())

    def _as_number(self) -> tuple[str, Callable[[Message], Any]]:
        if self._chance.random() < 0.5:
            spelled, name = self._name()
            return spelled, lambda message: fraction(name.value(message))
        digits, number = self._number()
        return digits, lambda _: number

    def _equal_numbers(self) -> tuple[str, Callable[[Message], Truth]]:
        digits, number = self._number()
        return self._pair([self._as_number(), (digits, lambda _: number)], *self._equality())

    def _ordered(self) -> tuple[str, Callable[[Message], Truth]]:
        orders: list[tuple[str, Callable[[Any, Any], bool]]] = [
            (">", lambda x, y: x > y),
            (">=", lambda x, y: x >= y),
            ("<", lambda x, y: x < y),
            ("<=", lambda x, y: x <= y),
        ]
        sign, compare = self._chance.choice(orders)
        return self._pair([self._as_number(), self._as_number()], self._sign(sign), compare)

    def _negated(
        self, first: str, rest: str, inner: Callable[[Message], Truth]
    ) -> tuple[str, Callable[[Message], Truth]]:
        if self._chance.random() < 0.5:
            return first + rest, inner
        return first + self._word("NOT").rstrip(" ") + rest, lambda message: NOT[inner(message)]

    def _between(self) -> tuple[str, Callable[[Message], Truth]]:
        spelled, value = self._as_number()
        (low_text, low), (high_text, high) = sorted([self._number(), self._number()], key=lambda one: one[1])

        def inner(message: Message) -> Truth:
            found = value(message)
            return None if found is None else low <= found <= high

        rest = self._word("BETWEEN") + low_text + self._word("AND") + high_text
        return self._negated(spelled, rest, inner)

    def _among(self) -> tuple[str, Callable[[Message], Truth]]:
        spelled, name = self._name()
        listed = [self._quoted() for _ in range(self._chance.randint(1, 4))]
        texts = [text for _, text in listed]

        def inner(message: Message) -> Truth:
            value = name.value(message)
            return None if value is None else value in texts

        rest = self._word("IN") + self._bracketed(self._sign(",").join(quoted for quoted, _ in listed))
        return self._negated(spelled, rest, inner)

    def _part(self) -> tuple[str, Callable[[Message], Truth]]:
        spelled, name = self._name()
        quoted, part = self._quoted()
        keyword = self._chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))

        def inner(message: Message) -> Truth:
            value = name.value(message)
            if value is None:
                return None
            if keyword == "STARTSWITH":
                return value[: len(part)] == part
            if keyword == "ENDSWITH":
                return value[max(0, len(value) - len(part)) :] == part
            return any(value[at : at + len(part)] == part for at in range(len(value) + 1))

        return self._negated(spelled, self._word(keyword) + quoted, inner)

    def _missing(self) -> tuple[str, Callable[[Message], Truth]]:
        spelled, name = self._name()
        if self._chance.random() < 0.5:
            return spelled + self._word("IS") + "NULL", lambda message: name.value(message) is None
        return spelled + self._word("IS") + "not" + self._word("null"), lambda message: name.value(message) is not None

    def _truth(self) -> tuple[str, Callable[[Message], Truth]]:
        spelled, name = self._name()
        value = self._chance.random() < 0.5

        def found(message: Message) -> Any:
            text = name.value(message)
            return None if text is None else {"true": True, "false": False}.get(text.lower())

        return self._pair([(spelled, found), (str(value), lambda _: value)], *self._equality())


def draw_message(chance: random.Random) -> Message:
    """Some properties, and a key or none."""
    values = (*TEXTS, *NUMBERS[:9], " 1", "1_0", "nan", "inf", "0x1", "٣", "1e99999", "-0")
    properties = {name: chance.choice(values) for name in NAMES if chance.random() < 0.6}
    key = chance.choice([None, b"", b"a", b"1", b"\xff", "é".encode(), b"red"])
    return properties, key
