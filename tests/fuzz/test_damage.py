"""Some damaged stores, and some crashes inside repairs; `python -m tests.fuzz damage` is the long form."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, OffsetOutOfRange, StoreCorrupt
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.topics.durable_ids import DurableIds
from tests.seeds import draw_seed
from tests.store.helpers import flip_bit, memory_folder

from .cases import Case, damage
from .checks import Broken, Expected
from .damage import CUTS_A_REPAIR, Fuzzer, Stock
from .faults import Fault, draw_faults, draw_pair
from .orders import Order
from .places import HEADER_BYTES, Places, Verdict, locate, zones_of
from .stories import WITH_DUE, Maker, Plan

QUIET = Order(caches=False, plain_first=False, append_plainly=True, append_in_repair=False, retire=True, seed=1)
PLAN = Plan(lanes=1, retention=False, closed=True, repaired=False, bulk=False, marks=False, seed=7)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture(scope="module")
def closed(folder: Path) -> Places:
    """A small store that was closed."""
    (folder / "story").mkdir()
    return locate(Maker(PLAN, folder / "story").make(), folder / "story")


def test_damage_costs_what_is_damaged_and_a_repair_tells_of_it(folder: Path) -> None:
    seed = draw_seed()
    home = folder / "fuzzed"
    home.mkdir()
    fuzzer = Fuzzer(seed, Stock(seed, 4, home, print), home)
    findings = [fuzzer.run(number).finding for number in range(15)]
    findings += [fuzzer.run(number, cuts=CUTS_A_REPAIR).finding for number in range(1)]
    assert not any(findings), "\n\n".join(str(finding) for finding in findings if finding is not None)


def test_two_damages_cost_what_is_damaged_in_stores_with_records(folder: Path) -> None:
    seed = draw_seed()
    home = folder / "pairs"
    home.mkdir()
    fuzzer = Fuzzer(seed, Stock(seed, 2, home, print, pairs=True), home)
    findings = [fuzzer.run(number).finding for number in range(5)]
    assert not any(findings), "\n\n".join(str(finding) for finding in findings if finding is not None)


def test_pairs_are_two_damages_and_some_of_them_are_close(closed: Places) -> None:
    pairs = [draw_pair(closed, [closed], random.Random(seed)) for seed in range(60)]
    assert all(len(pair) == 2 for pair in pairs)
    assert sum("(record)" in first.text + second.text for first, second in pairs) > 5


def test_unharmed_store_with_records_passes_all_checks(folder: Path) -> None:
    home = folder / "records"
    home.mkdir()
    places = locate(Maker(PLAN._replace(lanes=2, records=True), home).make(), home)
    assert any(file.records for file in places.files)
    Case(places, damage(places, []), QUIET._replace(retire=False), folder).run()


def test_unharmed_store_passes_all_checks(closed: Places, folder: Path) -> None:
    Case(closed, damage(closed, []), QUIET, folder).run()


def test_same_seed_draws_the_same_faults(closed: Places) -> None:
    first, second = (
        [damage(closed, draw_faults(closed, [closed], random.Random(seed))) for seed in range(20)] for _ in range(2)
    )
    assert first == second
    assert any(state != closed.story.final for state in first)


def test_unhurt_is_what_no_fault_has_touched(closed: Places) -> None:
    """A flip in a payload hurts this message; one in a frame's head all of the frame; none is a tail."""
    file = next(file for file in closed.files if len(file.numbers) > 20)
    begin = next(begin for begin, end in zip(file.begins, file.ends, strict=True) if end > begin)
    at = file.begins.index(begin)

    def flip(place: int) -> Verdict:
        content = bytearray(closed.story.final[file.name])
        content[place] ^= 1
        return Verdict(closed, {**closed.story.final, file.name: bytes(content)})

    hurt = flip(begin)
    assert sum(int((~rows).sum()) for rows in hurt.unhurt) == 1
    assert not hurt.unhurt[file.numbers[at]][file.offsets[at]]
    assert not any(rows.any() for rows in hurt.tail)
    whole = flip(zones_of(file)["frame head"][file.frame_of[at]][0])
    assert sum(int((~rows).sum()) for rows in whole.unhurt) == file.frame_of.count(file.frame_of[at])


def test_message_under_another_offset_is_noticed(closed: Places, folder: Path) -> None:
    """A made store whose ledger is wrong by one offset must not pass."""
    told = next(told for told in closed.story.known() if len(told.lengths) > 3)
    told.payloads[1], told.payloads[2] = told.payloads[2], told.payloads[1]
    try:
        with pytest.raises(Broken, match="other bytes"):
            Case(closed, damage(closed, []), QUIET, folder).run()
    finally:
        told.payloads[1], told.payloads[2] = told.payloads[2], told.payloads[1]


def test_message_that_is_gone_is_noticed(closed: Places, folder: Path) -> None:
    """Verdicts are of the files that are harmed: what is gone beyond them must be found missing."""
    last = closed.files[-1]
    cut = Fault("cut", lambda state: {**state, last.name: state[last.name][: last.frames[-1].begin]})
    case = Case(closed, damage(closed, [cut]), QUIET, folder)
    case.verdict = Verdict(closed, closed.story.final)
    with pytest.raises(Broken, match="a repair lost an unhurt message"):
        case.run()


@pytest.fixture(scope="module")
def with_ids(folder: Path) -> Places:
    """A small store that was killed, with ids in the last of its segments."""
    home = folder / "ids"
    home.mkdir()
    places = locate(Maker(PLAN._replace(closed=False, records=True, small=True), home).make(), home)
    assert places.files[-1].ids
    return places


def test_ids_go_with_the_end_of_a_log_that_vanishes_without_a_trace(with_ids: Places, folder: Path) -> None:
    last = with_ids.files[-1]
    begin = last.frames[min(frame for frames in last.ids.values() for frame in frames)].begin
    zeros = Fault(
        "zeros", lambda state: {**state, last.name: state[last.name][:begin].ljust(len(state[last.name]), b"\0")}
    )
    case = Case(with_ids, damage(with_ids, [zeros]), QUIET._replace(retire=False), folder)
    gone = last.ids.keys() - {digest for file in with_ids.files[:-1] for digest in file.ids}
    assert gone and case.verdict.kept_ids.isdisjoint(gone)
    case.run()


def test_id_that_is_forgotten_while_its_record_is_whole_is_noticed(
    with_ids: Places, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(with_ids, damage(with_ids, []), QUIET._replace(retire=False), folder)
    monkeypatch.setattr(DurableIds, "find", lambda _ids, _digest: None)
    with pytest.raises(Broken, match="an id is forgotten without a word"):
        case.run()


def test_copy_of_a_delayed_message_under_a_lost_name_is_a_record(with_ids: Places) -> None:
    """Retention leaves copies in a stream of the store's own: with the message's bytes, at other offsets."""
    expected, delayed = Expected(with_ids.story), with_ids.story.queues[WITH_DUE].payloads
    assert expected.is_record(delayed[0], 7)
    assert not expected.is_record(delayed[0], 0)
    assert not expected.is_record(with_ids.story.queues[0].payloads[0], 7)


@pytest.fixture(scope="module")
def retained(folder: Path) -> Places:
    """A small store of which retention has removed the oldest segments."""
    home = folder / "retained"
    home.mkdir()
    places = locate(Maker(PLAN._replace(retention=True, seed=5), home).make(), home)
    assert places.files[0].sequence > 1 and len(places.files) > 2  # an older one than recovery reads
    return places


def cut_first(places: Places) -> Fault:
    """The oldest segment is cut behind its seal record: its frames and its footer are gone."""
    first = places.files[0]
    assert first.record is not None
    return Fault("cut", lambda state: {**state, first.name: state[first.name][: BLOCK_BYTES + HEADER_BYTES]})


def test_messages_below_the_bounds_are_not_gone_in_silence_if_a_read_refuses_them(
    retained: Places, folder: Path
) -> None:
    case = Case(retained, damage(retained, [cut_first(retained)]), QUIET._replace(retire=False), folder)
    case.run()


def test_messages_below_the_bounds_that_no_read_refuses_are_noticed(
    retained: Places, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes what it cannot find for what retention has removed."""
    get_range = MessageStore.get_range

    def silent(store: MessageStore, topic: str, queue_id: int, offset: int, count: int) -> dict[int, bytes]:
        try:
            return get_range(store, topic, queue_id, offset, count)
        except StoreCorrupt:
            raise OffsetOutOfRange(topic, queue_id, offset, *store.queue_bounds(topic, queue_id)) from None

    case = Case(retained, damage(retained, [cut_first(retained)]), QUIET._replace(retire=False), folder)
    monkeypatch.setattr(MessageStore, "get_range", silent)
    with pytest.raises(Broken, match="a message vanished in silence"):
        case.run()


def test_flipped_bit_on_the_disk_is_another_state(closed: Places, folder: Path) -> None:
    case = Case(closed, damage(closed, []), QUIET, folder)
    case.run()
    flip_bit(case.path / closed.files[0].name, closed.files[0].frames[0].begin)
    with pytest.raises(Broken):
        case.after([])
