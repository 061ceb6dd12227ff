"""Records of trimmed streams: their bytes, what counts of several, and what a footer keeps of them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stratalog.store.errors import InvalidTopic, StoreCorrupt
from stratalog.store.format.records import (
    DELETE,
    NOT_TRIMMED,
    RECORD_BYTES,
    RECORDS_TOPIC,
    TRIM,
    Record,
    StreamLow,
    add_low,
    add_trimmed,
)
from stratalog.store.log.streams import Lows, Stream, check_name
from stratalog.store.log.trims import TrimRequest, Trims, trim_requests
from tests.store.test_footer import open_footer

from . import golden


def stream(number: int, topic: str = "t") -> Stream:
    lane: object = None
    return Stream(topic, 0, lane, number)  # type: ignore[arg-type]  # it is not asked for anything


def test_golden_record_unpacks_to_its_value() -> None:
    assert Record.unpack(golden.fixture("record-trim")) == (TRIM, 70_000, 5_000_000_000)
    assert Record.unpack(golden.fixture("record-delete")) == (DELETE, 1, 17)
    assert len(golden.fixture("record-trim")) == RECORD_BYTES == 20


@pytest.mark.parametrize(("at", "size"), [(0, 4), (4, 1), (5, 1), (6, 2)], ids=["magic", "version", "kind", "zeros"])
def test_record_of_another_kind_is_none(at: int, size: int) -> None:
    content = bytearray(golden.fixture("record-trim"))
    content[at : at + size] = b"\x07" * size
    assert Record.unpack(bytes(content)) is None


def test_record_of_another_size_or_below_zero_is_none() -> None:
    content = golden.fixture("record-trim")
    assert Record.unpack(content[:-1]) is None
    assert Record.unpack(content + b"\0") is None
    assert Record.unpack(b"") is None
    assert Record.unpack(content[:16] + struct.pack("<q", -1)) is None


def test_no_user_can_name_the_stream_of_records() -> None:
    with pytest.raises(InvalidTopic):
        check_name(RECORDS_TOPIC, 0)
    assert "\0" not in RECORDS_TOPIC, "footers separate names by it"


def test_largest_numbers_of_several_records_count() -> None:
    found: dict[int, StreamLow] = {}
    for record in (Record(TRIM, 1, 5), Record(DELETE, 1, 9), Record(TRIM, 1, 7), Record(TRIM, 2, 3)):
        add_low(found, record.number, record.effect)
    assert found == {1: StreamLow(9, 9), 2: StreamLow(3, 0)}
    add_trimmed(found, {1: StreamLow(12, 0), 3: StreamLow(1, 1)})
    assert found == {1: StreamLow(12, 9), 2: StreamLow(3, 0), 3: StreamLow(1, 1)}
    assert StreamLow(12, 9).cut(10) == StreamLow(10, 9)
    assert NOT_TRIMMED == (0, 0)


# -- a lane's lows ------------------------------------------------------------------------------------


def test_readers_see_a_low_when_its_record_is_answered_without_error() -> None:
    lows, trims, mine = Lows(stream(0)), Trims(), stream(1)
    one, other = TrimRequest(lows, [(mine, StreamLow(5, 0))]), TrimRequest(lows, [(mine, StreamLow(9, 9))])
    assert trims.note([one, other]) == 2
    assert (mine.low, mine.hidden, lows.shown) == (0, 0, 0)
    one.answer()
    assert (mine.low, mine.hidden, lows.shown) == (5, 0, 1)
    other.answer(StoreCorrupt("poisoned", "x", 0))
    assert (mine.low, mine.hidden, lows.shown) == (5, 0, 1)
    assert trims.lend().whole() == {1: StreamLow(9, 9)}


def test_what_was_lent_to_a_footer_never_changes() -> None:
    lows, trims, mine = Lows(stream(0)), Trims({1: StreamLow(2, 0)}), stream(1)
    lent = trims.lend().whole()
    trims.note([TrimRequest(lows, [(mine, StreamLow(5, 0))])])
    assert lent == {1: StreamLow(2, 0)}
    assert trims.lend().whole() == {1: StreamLow(5, 0)}


def test_answers_in_another_order_than_the_log_leave_the_largest() -> None:
    lows, mine = Lows(stream(0)), stream(1)
    early, late = TrimRequest(lows, [(mine, StreamLow(5, 5))]), TrimRequest(lows, [(mine, StreamLow(9, 0))])
    late.answer()
    early.answer()
    assert (mine.low, mine.hidden) == (9, 5)


def test_column_leaves_out_records_as_soon_as_there_is_one() -> None:
    records, others = stream(-1, RECORDS_TOPIC), [stream(0), stream(1)]
    lows = Lows(records)
    assert lows.column(others) is None
    records.number = 2
    lows.show([(others[1], StreamLow(7, 0))])
    column = lows.column([*others, records])
    assert column is not None
    assert column.tolist() == [0, 7, (1 << 63) - 1]


@pytest.mark.parametrize(("limit", "sizes"), [(1 << 20, [*[1638] * 6, 172]), (200, [10] * 1000), (1, [1] * 10_000)])
def test_records_are_cut_to_parts_of_the_reserve_and_to_frames(limit: int, sizes: list[int]) -> None:
    lows = Lows(stream(0))
    changes = [(stream(number), StreamLow(1, 0)) for number in range(10_000)]
    requests = trim_requests(lows, changes, limit)
    assert [request.count for request in requests] == sizes
    assert [change for request in requests for change in request.changes] == changes


# -- footers ------------------------------------------------------------------------------------------


def test_footer_gives_back_what_is_trimmed(tmp_path: Path) -> None:
    footer = open_footer(tmp_path, golden.fixture("footer"))
    assert footer.trimmed == {0: StreamLow(11, 0), 1: StreamLow(5_000_000_000, 4_999_999_999)}


@pytest.mark.parametrize(
    "trimmed",
    [{3: StreamLow(0, 0)}, {0: StreamLow(14, 0)}, {0: StreamLow(-1, -1)}, {0: StreamLow(5, 6)}, {0: StreamLow(5, -1)}],
    ids=["no such stream", "behind its end", "below zero", "hidden behind the low", "hidden below zero"],
)  # fmt: skip
def test_footer_that_nobody_could_have_written_is_damage(tmp_path: Path, trimmed: dict[int, StreamLow]) -> None:
    data = golden.footer_data()
    data.trimmed = trimmed
    with pytest.raises(StoreCorrupt, match="trimmed streams makes no sense"):
        open_footer(tmp_path, data.pack(7))


def test_trims_behind_what_was_lent_stay_when_that_is_settled() -> None:
    lows, trims, first, second = Lows(stream(0)), Trims(), stream(1), stream(2)
    trims.note(trim_requests(lows, [(first, StreamLow(2)), (second, StreamLow(1))], 1 << 20))
    lent = trims.lend()
    trims.note(trim_requests(lows, [(second, StreamLow(7))], 1 << 20))
    later = trims.lend()
    trims.note(trim_requests(lows, [(first, StreamLow(9))], 1 << 20))
    trims.settle(lent, [])
    newest = trims.lend()
    assert lent.whole() == lent.since == {1: StreamLow(2), 2: StreamLow(1)}
    assert later.whole() == later.since == {1: StreamLow(2), 2: StreamLow(7)}
    assert newest.since == {1: StreamLow(9), 2: StreamLow(7)}
    assert newest.before == lent.whole()
    trims.settle(later, [1])
    assert trims.lend().since == {1: StreamLow(9)}
    assert trims.lend().before == {2: StreamLow(7)}
