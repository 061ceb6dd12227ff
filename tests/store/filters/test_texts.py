"""Texts get the same number if they are equal, and only then; what is remembered is bounded."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest

from stratalog.store.filters import message_filter, texts
from stratalog.store.filters.message_filter import MessageFilter
from stratalog.store.filters.texts import NO_TEXT, TextNumbers
from stratalog.store.format.blobs import Blobs, ExtraColumns
from tests.seeds import draw_seed


def numbers_of(table: TextNumbers, rows: Sequence[bytes | None]) -> list[int]:
    lengths = np.array([-1 if row is None else len(row) for row in rows], np.int64)
    return [int(number) for number in table.number_all(lengths, b"".join([row or b"" for row in rows]))]


def check(table: TextNumbers, rows: Sequence[bytes | None]) -> None:
    numbers = numbers_of(table, rows)
    assert [table.texts[number] for number in numbers] == list(rows)
    assert all((number == NO_TEXT) == (row is None) for number, row in zip(numbers, rows, strict=True))


def drawn(chance: random.Random) -> bytes:
    """Texts of all lengths, many of which differ in one byte, or only by zeros at the end."""
    length = chance.choice((0, 1, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 505, 511, 512, 513, 520, 2000))
    text = bytearray(chance.choice((b"\0", b"a", b"\xff")) * length)
    if length and chance.random() < 0.8:
        text[chance.choice((0, length // 2, length - 1))] = chance.choice((0, 1, 97, 98, 128))
    return bytes(text)


def test_equal_texts_have_one_number_and_others_another() -> None:
    chance = random.Random(draw_seed())
    table = TextNumbers()
    for count in (1, 5, 31, 32, 33, 100, 1000, 5000):
        rows = [None if chance.random() < 0.1 else drawn(chance) for _ in range(count)]
        check(table, rows)
        check(table, rows)
    assert len(set(table.texts)) == len(table.texts), "no text has two numbers"


@pytest.mark.parametrize("lengths", [(15, 30), (8, 9), (1, 600), (9, 16, 17), (600, 700)])
def test_texts_of_several_lengths_and_no_empty_one(lengths: tuple[int, ...]) -> None:
    """Each row has a text, as where each message has properties: the shortest ones are found as the others are."""
    rows = [b"%d" % (at % 7) * length for at in range(50) for length in lengths]
    for order in (rows, rows[::-1]):
        table = TextNumbers()
        check(table, order)
        check(table, order)


def test_texts_of_one_length_are_told_apart_by_each_of_their_bytes() -> None:
    for length in (1, 8, 13, 64, 512):
        rows = [bytes(length)] * 40
        for at in range(length):
            one = bytearray(length)
            one[at] = 1
            rows += [bytes(one)] * 2
        check(TextNumbers(), rows)


def test_texts_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_FACTORS", np.zeros_like(texts._FACTORS))  # all texts have the hash 0
    rows = [b"text %d" % (at % 50) + bytes(at // 50 % 2) for at in range(500)]
    table = TextNumbers()
    check(table, rows)
    check(table, rows[::-1])
    assert len(table.texts) == 101


def test_texts_that_take_each_others_slot_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_SLOT_BITS", 1)
    rows = [b"text %d" % (at % 50) for at in range(500)]
    table = TextNumbers()
    for _ in range(3):
        check(table, rows)
    assert len(table.texts) == 51


def test_known_texts_are_found_together_and_not_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, asked = random.Random(draw_seed()), list[bytes | None]()
    known = [b"%d text" % at for at in range(100)]  # what follows a text, the next one's beginning, differs
    table = TextNumbers()
    check(table, known)
    plain = table.number

    def noted(text: bytes | None) -> int:
        asked.append(text)
        return plain(text)

    monkeypatch.setattr(table, "number", noted)
    check(table, chance.choices(known, k=5000))
    assert len(asked) < len(known) / 2, "only those that share a slot"


def test_nothing_has_no_number() -> None:
    assert numbers_of(TextNumbers(), []) == []
    assert numbers_of(TextNumbers(), [None] * 100) == [NO_TEXT] * 100
    table = TextNumbers()
    check(table, [b""] * 100 + [None, b"\0"] * 100)


def test_an_interrupt_at_any_place_leaves_the_answers_right() -> None:
    chance = random.Random(draw_seed())
    rows = [b'{"n":"%d"}' % chance.randrange(300) for _ in range(400)] + [b'{"n":"%d","long":"%s"}' % (1, b"-" * 600)]
    keys = Blobs.of([chance.choice((b"a", b"b")) for _ in rows])
    for text in ("n < 50", "n < 50 AND key = 'a'"):
        expected = mask_of(MessageFilter(text), rows, keys)
        wanted, at, cut = MessageFilter(text), 0, True
        while cut:
            at += chance.randint(1, 40)
            cut = was_interrupted(lambda: mask_of(wanted, chance.sample(rows[:400], 100)), at)  # noqa: B023
            assert mask_of(wanted, rows, keys) == expected
            if chance.random() < 0.2:
                wanted = MessageFilter(text)


def was_interrupted(call: Callable[[], object], lines: int) -> bool:
    """Make a call, with an interrupt before one of its lines; whether it came so far."""
    left = lines

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if "filters" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def mask_of(wanted: MessageFilter, rows: Sequence[bytes | None], keys: Any = None) -> list[bool]:
    columns = ExtraColumns(len(rows), None, keys, Blobs.of(rows))
    return [bool(one) for one in wanted.mask(columns, len(rows))]


def test_each_distinct_text_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes | None] = []
    wanted = MessageFilter("n < 50")
    plain = wanted._decoded

    def noted(text: bytes | None) -> Any:
        decoded.append(text)
        return plain(text)

    monkeypatch.setattr(wanted, "_decoded", noted)
    rows = [b'{"n":"%d"}' % (at % 100) for at in range(20_000)]
    for _ in range(3):
        assert mask_of(wanted, rows) == [at % 100 < 50 for at in range(20_000)]
    assert sorted(filter(None, decoded)) == sorted(set(rows))


@pytest.mark.parametrize("text", ["n < 50", "n < 50 AND key = 'a'"])
def test_what_is_remembered_is_bounded_and_the_answers_stay_right(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(texts, "MOST_TEXTS", 300)
    monkeypatch.setattr(message_filter, "MOST_PAIRS", 300)
    monkeypatch.setattr(message_filter, "ROWS_TOGETHER", 100)
    wanted = MessageFilter(text)
    rows = [b'{"n":"%d"}' % (at * 7919 % 5003) for at in range(5000)]
    keys = [b"ab"[at % 2 : at % 2 + 1] for at in range(5000)]
    for _ in range(2):
        answers = mask_of(wanted, rows, Blobs.of(keys))
        assert answers == [wanted.takes(row, key) for row, key in zip(rows, keys, strict=True)]
        known = wanted._known
        assert len(known.properties.texts) <= 300 + 101
        assert len(known.values) <= 300 + 101 and len(known.of_pairs) <= 300 + 100


def test_long_texts_are_forgotten_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MOST_BYTES", 50_000)
    monkeypatch.setattr(message_filter, "ROWS_TOGETHER", 10)
    wanted = MessageFilter("x = 'y'")
    rows = [b'{"x":"y","n":"%d%s"}' % (at, b"-" * 3000) for at in range(200)]
    assert all(mask_of(wanted, rows))
    assert sum(map(len, filter(None, wanted._known.properties.texts))) < 50_000 + 10 * 3100


@pytest.mark.parametrize("text", ["key = 'a'", "key IS NULL", "key = 'a' OR n = 1", "n IS NULL", "n = 1 AND TRUE"])
def test_columns_that_are_missing_are_messages_without(text: str) -> None:
    wanted = MessageFilter(text)
    for properties in (None, [b'{"n":"1"}', None] * 25):
        for keys in (None, [b"a", b"b", None, b"a", b"\xff"] * 10):
            columns = ExtraColumns(
                50, None, None if keys is None else Blobs.of(keys), None if properties is None else Blobs.of(properties)
            )
            expected = [
                wanted.takes(None if properties is None else properties[at], None if keys is None else keys[at])
                for at in range(50)
            ]
            assert wanted.mask(columns, 50).tolist() == expected
    assert wanted.mask(None, 3).tolist() == [wanted.takes(None)] * 3
    assert wanted.mask(None, 0).tolist() == wanted.mask(ExtraColumns(0, None, None, None), 0).tolist() == []
    assert (
        wanted.mask(
            ExtraColumns(0, None, Blobs(np.empty(0, np.int64), b""), Blobs(np.empty(0, np.int64), b"")), 0
        ).tolist()
        == []
    )
