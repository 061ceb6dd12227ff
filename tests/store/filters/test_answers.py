"""The answers of filters: those of a second evaluator, written by the grammar, and some that people ask about."""

from __future__ import annotations

import json
import random

import pytest

from stratalog.store.filters.given import check_filter
from stratalog.store.filters.message_filter import MessageFilter
from stratalog.store.format.blobs import Blobs, ExtraColumns
from tests.seeds import draw_seed

from .grammar import Draw, Message, draw_message

ROUNDS, MESSAGES = 400, 60


def columns_of(messages: list[Message]) -> ExtraColumns:
    properties = [None if not one and at % 2 else json.dumps(one).encode() for at, (one, _) in enumerate(messages)]
    return ExtraColumns(len(messages), None, Blobs.of([key for _, key in messages]), Blobs.of(properties))


def test_answers_are_those_of_an_evaluator_written_by_the_grammar() -> None:
    chance = random.Random(draw_seed())
    draw, seen = Draw(chance), {True: 0, False: 0, None: 0}
    messages: list[Message] = [({}, None), *(draw_message(chance) for _ in range(MESSAGES))]
    columns = columns_of(messages)
    for _ in range(ROUNDS):
        text, answer = draw.whole(chance.randint(0, 3))
        answers = [answer(message) for message in messages]
        for one in answers:
            seen[one] += 1
        wanted = MessageFilter(check_filter(text) or "")
        assert wanted.mask(columns, len(messages)).tolist() == [one is True for one in answers], text
        inverted = MessageFilter(f"NOT ({text})").mask(columns, len(messages))
        assert inverted.tolist() == [one is False for one in answers], text
    assert min(seen.values()) > ROUNDS, f"all three answers occur: {seen}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tag = 'urgent' AND price BETWEEN 1 AND 9", True),
        ("tag='urgent'and price>=5 and(price<=5)", True),
        ("TAGS IN ('paid', 'urgent')", True),
        ("price = '5.0'", False),  # texts are compared as they are
        ("price = 5.0", True),
        ("price = 5 AND NOT price > 5", True),
        ("size > 5", False),  # "big" is no number
        ("NOT size > 5", False),
        ("size > 5 OR TRUE", True),
        ("colour = 'red'", False),
        ("colour <> 'red'", False),  # unknown: there is no colour
        ("colour IS NULL OR colour <> 'red'", True),
        ("NOT (colour = 'red')", False),
        ("NOT NOT tag = 'urgent'", True),
        ("NOT tag = 'paid' AND price = 5", True),
        ("tag = 'x' AND price = 9 OR price = 5", True),
        ("tag = 'x' AND (price = 9 OR price = 5)", False),
        ("key = 'k-1'", True),
        ("KEYS STARTSWITH 'k-' AND key NOT CONTAINS '2'", True),
        ('"key" = \'a property\'', True),
        ('"TAGS" IS NULL', True),
        ('"order id" ENDSWITH \'7\'', True),
        ("note = 'it''s'", True),
        ("note CONTAINS ''", True),
        ("paid = TRUE", True),
        ("paid <> FALSE", True),
        ("size = TRUE", False),
        ("size <> TRUE", False),
        ("Tag IS NULL", True),  # names have their case
        ("exact = 12345678901234567890.1", True),
        ("exact = 12345678901234567890", False),
        ("1 = 1", True),
        ("'a' <> 'b'", True),
        ("TRUE", True),
        ("FALSE OR FALSE", False),
    ],
)  # fmt: skip
def test_what_people_ask_about(text: str, wanted: bool) -> None:
    properties = {
        "tag": "urgent", "price": "5", "size": "big", "key": "a property", "order id": "4-7", "note": "it's",
        "paid": "True", "exact": "12345678901234567890.10",
    }  # fmt: skip
    assert MessageFilter(text).takes(json.dumps(properties).encode(), b"k-1") is wanted


def test_a_word_is_a_keyword_in_any_case_of_plain_letters_alone() -> None:
    properties = json.dumps({"ıs": "1", "ſ": "2"}).encode()
    assert MessageFilter("ıs = 1 AND ſ = 2").takes(properties)
    assert MessageFilter('"in" IS NULL aNd tag iS nUlL').takes(b"{}")


def test_a_key_that_is_no_text_is_missing() -> None:
    wanted = MessageFilter("key IS NULL")
    assert [wanted.takes(None, key) for key in (None, b"\xff", b"", b"k")] == [True, True, False, False]


def test_properties_that_are_no_object_are_never_wanted() -> None:
    for text in ("TRUE", "tag IS NULL", "key IS NULL"):
        wanted = MessageFilter(text)
        for odd in (b"", b"[]", b"1", b"{", b"\xff", b'"tag"', b"[" * 100_000):
            assert not wanted.takes(odd)
            assert not wanted.mask(ExtraColumns(1, None, None, Blobs.of([odd])), 1).any()
        assert wanted.takes(None) and wanted.takes(b"{}")


def test_a_value_that_is_no_text_is_missing() -> None:
    assert MessageFilter("n IS NULL").takes(b'{"n":5}')
    assert not MessageFilter("n = 5").takes(b'{"n":5}')
