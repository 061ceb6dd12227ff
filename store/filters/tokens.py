"""The words of a filter in SQL: names, numbers, texts, signs and keywords, each with its place."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from ..errors import InvalidMessage, shown

KEYWORDS = frozenset(
    ["AND", "OR", "NOT", "IS", "NULL", "BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE"]
)
_SHOWN_CHARACTERS = 20
_NAMED = {"text": "a text in single quotes", "number": "a number"}  # the other kinds are what stands there
_SKIPPED = re.compile(r"(?:\s+|--[^\r\n]*|/\*.*?\*/)*", re.DOTALL)  # blanks and comments
_TOKEN = re.compile(
    r"""(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[lL]?(?![\w$.])
      | (?P<word>[^\W\d][\w$]*|\$[\w$]*)
      | (?P<text>'[^']*(?:''[^']*)*'(?!'))
      | (?P<quoted>"[^"]*(?:""[^"]*)*"(?!"))
      | (?P<sign><>|!=|>=|<=|[=<>(),+-])
      | (?P<end>\Z)
    """,
    re.VERBOSE,
)
_UNCLOSED = {
    "'": ("a ' after the text", "none"),
    '"': ('a " after the name', "none"),
    "/*": ("a */ after the comment", "none"),
}


class Token(NamedTuple):
    """A word of a filter.

    Attributes:
        kind: "name", "quoted" (a name in double quotes), "number", "text", "end"; of a sign or keyword itself.
        value: what it says: of a text or a quoted name without the quotes.
        at: where it begins, from 0 on.
    """

    kind: str
    value: str
    at: int

    def shown(self) -> str:
        """The word, for an error."""
        return "the end" if self.kind == "end" else shown(self.value)


class Tokens:
    """Reads the words of a text one after the other.

    Attributes:
        next: the word that was not taken yet; at last one of the kind "end", again and again.
    """

    def __init__(self, text: str) -> None:
        """Raises InvalidMessage if the first word is none."""
        self._text = text
        self._end = 0  # of `next`
        self.next = self._read()

    def take(self) -> Token:
        """The next word; it is taken. Raises InvalidMessage if the word after it is none."""
        token = self.next
        self.next = self._read()
        return token

    def take_if(self, kind: str) -> bool:
        """Take the next word if it is of this kind; whether it was."""
        if self.next.kind != kind:
            return False
        self.take()
        return True

    def want(self, kind: str) -> Token:
        """Take the next word, which is of this kind. Raises InvalidMessage if it is not."""
        if self.next.kind != kind:
            refuse(self.next.at, _NAMED.get(kind, kind), self.next.shown())
        return self.take()

    def _read(self) -> Token:
        at = _end_of_match(_SKIPPED, self._text, self._end)
        found = _TOKEN.match(self._text, at)
        unclosed = _UNCLOSED.get(self._text[at : at + 2]) or _UNCLOSED.get(self._text[at : at + 1])
        if found is None:
            refuse(at, *(unclosed or ("a word of a filter", shown(self._text[at : at + _SHOWN_CHARACTERS]))))
        self._end = found.end()
        kind = str(found.lastgroup)
        value = found[kind]
        if kind == "word":
            upper = value.upper()
            return Token(upper if value.isascii() and upper in KEYWORDS else "name", value, at)
        if kind in ("text", "quoted"):
            quote = value[0]
            return Token(kind, value[1:-1].replace(quote * 2, quote), at)
        return Token(value if kind == "sign" else kind, value, at)


def _end_of_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def refuse(at: int, expected: str, found: str) -> NoReturn:
    """Raise InvalidMessage: at a place, from 0 on, something else was expected than was found."""
    error = InvalidMessage(f"the filter is wrong at character {at + 1}: expected {expected}, found {found}")
    error.position, error.expected = at + 1, expected
    raise error
