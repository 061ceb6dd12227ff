"""What a repair counts: the sum between two headers is proved, single losses are counted only as far as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store.device.disk import OsDisk
from stratalog.store.format.layout import UNKNOWN
from stratalog.store.recovery.repair import Repair
from stratalog.store.recovery.tally import MessageTally


@pytest.fixture
def repair(tmp_path: Path) -> Repair:
    return Repair(OsDisk(), tmp_path / "quarantine", 0, allowed=True)


def tally_of(repair: Repair, kept: int, *losses: int | None, is_exact: bool = True) -> MessageTally:
    """A log that begins with segment 1, whose first segment keeps so many messages and has these losses."""
    tally = MessageTally(repair)
    tally.begin(1, 0)
    for number, messages in enumerate(losses):
        repair.note_missing(Path(f"file-{number}"), messages)
    tally.keep(kept, is_exact=is_exact)
    return tally


def counts(repair: Repair) -> list[int | None]:
    return [loss.messages for loss in repair.losses]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((3, 2), [3, 2]),
        ((3, None), [3, 2]),
        ((3, None, None), [3, 2, 0]),
        ((3,), [3, 2]),
        ((4, 2), [None, None]),
        ((0, 6), [0, None]),
        ((), []),
    ],
)
def test_next_header_proves_the_sum_of_the_losses_before_it(
    repair: Repair, losses: tuple[int | None, ...], expected: list[int | None]
) -> None:
    tally = tally_of(repair, 10, *losses)
    tally.reach(15)
    assert counts(repair) == expected
    assert tally.total == 15


def test_nothing_is_summed_up_where_a_header_does_not_count_or_a_segment_may_have_more(repair: Repair) -> None:
    tally = tally_of(repair, 10, None)
    tally.reach(UNKNOWN)
    tally.reach(30)
    tally = tally_of(repair, 10, None, is_exact=False)
    tally.reach(15)
    assert counts(repair) == [None, None]


def test_losses_without_a_count_make_the_total_unknown_and_headers_go_on_without_them(repair: Repair) -> None:
    tally = tally_of(repair, 10, 2, None)
    assert (tally.total, tally.next_total, tally.end_total) == (None, UNKNOWN, 12)
    assert tally.missing_before(20) is None
    tally = tally_of(repair, 10, 2)
    assert (tally.total, tally.next_total, tally.end_total) == (12, 12, 12)
    assert (tally.missing_before(20), tally.missing_before(UNKNOWN)) == (8, None)


def test_two_footers_count_what_is_left_out_between_them(repair: Repair) -> None:
    tally = tally_of(repair, 10, None, 2)
    assert tally.unplaced is None
    tally.place(Path("file"), 5, is_exact=True, is_sure=True)
    assert counts(repair) == [3, 2]
    assert tally.unplaced == 0
    tally.finish(has_all_streams=True)
    assert not any(loss.offsets_may_repeat for loss in repair.losses)


@pytest.mark.parametrize(("is_exact", "is_sure", "begins"), [(False, True, 1), (True, False, 1), (True, True, 7)])
def test_what_is_guessed_is_not_counted(repair: Repair, is_exact: bool, is_sure: bool, begins: int) -> None:
    """More is left out than was noted: that tells of a loss, and of how many messages only between two footers."""
    tally = MessageTally(repair)
    tally.begin(begins, 0)
    repair.note_missing(Path("file"), 2)
    tally.place(Path("file"), 5, is_exact=is_exact, is_sure=is_sure)
    assert counts(repair) == [2, None]


@pytest.mark.parametrize("begins", [1, 7])
@pytest.mark.parametrize("has_all", [True, False])
@pytest.mark.parametrize("placed", [2, 1])
@pytest.mark.parametrize("is_settled", [True, False])
def test_offsets_may_repeat_behind_the_last_whole_footer(
    repair: Repair, begins: int, has_all: bool, placed: int, is_settled: bool
) -> None:
    tally = MessageTally(repair)
    tally.begin(begins, 0)
    repair.note_missing(Path("before"), 4)
    if is_settled:
        tally.is_settled()
    repair.note_missing(Path("behind"), 2)
    tally.place(Path("behind"), placed + (0 if is_settled else 4), is_exact=False, is_sure=True)
    tally.finish(has_all_streams=has_all)
    is_known = (begins == 1 or is_settled) and has_all and placed == 2
    before, behind = repair.losses
    assert behind.offsets_may_repeat == (not is_known)
    assert before.offsets_may_repeat == (not is_known and not is_settled)


def test_offsets_that_may_repeat_are_told_with_the_first_loss_that_is_noted(repair: Repair) -> None:
    """Damage by which nothing is lost is noted last."""
    tally = MessageTally(repair)
    tally.begin(1, 0)
    tally.place(Path("file"), 0, is_exact=True, is_sure=False)
    repair.on_damage("damage", Path("file"), 7)
    repair.tell_all()
    tally.finish(has_all_streams=True)
    assert [(loss.position, loss.messages, loss.offsets_may_repeat) for loss in repair.losses] == [(7, 0, True)]


@pytest.mark.parametrize("placed", [3, 2])
@pytest.mark.parametrize("is_settled", [True, False])
def test_gaps_may_be_those_of_an_earlier_repair_where_an_older_loss_had_no_place_yet(
    repair: Repair, placed: int, is_settled: bool
) -> None:
    """That repair left out offsets in every queue for it, so more than were lost: they are in no loss's place."""
    tally = tally_of(repair, 10, 3)
    tally.place(Path("file-0"), placed, is_exact=False, is_sure=True)
    tally.reach(13)
    if is_settled:
        tally.is_settled()
    repair.note_missing(Path("behind"), 4)
    tally.place(Path("behind"), 4 + (0 if is_settled else 3 - placed), is_exact=False, is_sure=True)
    tally.finish(has_all_streams=True)
    is_known = is_settled or placed == 3
    assert [loss.offsets_may_repeat for loss in repair.losses] == [not is_known] * 2
