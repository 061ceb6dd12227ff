"""The soak in its short form, and that it sees what it is there to see."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore
from stratalog.store.log.removal import Removal, _OverLimit
from stratalog.store.subscriptions import journal
from stratalog.store.testing import TunedConfig
from tests.seeds import draw_seed

from ..store.helpers import crash_copy, has_settled, until
from . import run as soak
from .__main__ import main
from .child import QUEUE_COUNT, TOPIC, Plan, message, seed_of
from .consumers import KEPT
from .ledger import Ledger, Violation
from .plan import DISK_KINDS, KINDS, draw
from .removals import Row, told_removals

LONG_S = 100.0
SMALL = TunedConfig(segment_bytes=64 << 10, recent_bytes=0)


def test_short_soak_tries_every_kind_and_finds_nothing(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out.json"
    runs.mkdir()
    assert main(["--short", "--seed", "7", "--dir", str(runs), "--json", str(out)]) == 0
    assert list(runs.iterdir()) == []
    figures: dict[str, Any] = json.loads(out.read_text())
    assert figures["violations"] == []
    assert {label.split(":")[0] for label in figures["lives"]} == set(KINDS)
    assert figures["cycles"] == figures["kills"] + figures["closes"] >= len(KINDS)
    assert figures["acknowledged"] > 0
    assert figures["checked"] > 0
    assert figures["consumed"] > 0
    assert figures["seed"] == 7
    assert len(figures["seeds"]) == figures["stores"]


def test_killed_stores_have_every_acknowledged_message(tmp_path: Path) -> None:
    counts = ("kills", "acknowledged", "checked")
    tally = soak.run(tmp_path, minutes=0, seed=draw_seed(), life_s=0.5, kinds=("kill",) * 8, until=counts)
    assert tally.violations == []
    assert tally.kills and tally.acknowledged and tally.checked


def test_violation_ends_the_soak_with_exit_code_1_and_keeps_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_ledger: Ledger, **_how: object) -> int:
        raise Violation("planted")

    monkeypatch.setattr(Ledger, "check", broken)
    assert main(["--short", "--seed", "7", "--dir", str(tmp_path)]) == 1
    assert "Violation: planted" in " ".join(capsys.readouterr().out.split())
    assert [path.name.split("-")[-1] for path in tmp_path.iterdir()] == ["violation"]


def test_child_that_ends_by_an_error_of_its_own_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_for_good(*given: Any) -> tuple[Plan, float | None]:
        """As drawn, but a child with a broken disk lives until it meets the fault: then its parent ends it."""
        plan, kill_after = draw(*given)
        if plan.disk_fault is None:
            return plan, kill_after
        return replace(plan, seconds=LONG_S, disk_fault={**plan.disk_fault, "for_good": True}), None

    monkeypatch.setattr(soak, "draw", draw_for_good)
    monkeypatch.setattr(soak, "STUCK_S", 2 * LONG_S)
    monkeypatch.setattr(soak, "DOCUMENTED", {})
    monkeypatch.setattr("tests.soak.plan.DISK_KINDS", {"create": 1})  # the first file that is made
    tally = soak.run(tmp_path / "base", minutes=0, seed=1, life_s=0.3)
    assert len(tally.violations) == 1
    assert "raised Store" in tally.violations[0]


# -- the ledger ---------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A store with five messages in a queue, all noted."""
    made = Ledger(tmp_path / "store")
    with MessageStore.open(made.path, SMALL) as store:
        for seed in range(5):
            made.note(2, store.append(TOPIC, 2, message(2, seed, 100)), seed)
    return made


def test_ledger_finds_all_that_was_acknowledged(ledger: Ledger) -> None:
    assert ledger.check(retention=False) == 5
    assert ledger.acknowledged == 5


def test_ledger_misses_a_lost_message(ledger: Ledger) -> None:
    ledger.note(2, 5, 99)
    with pytest.raises(Violation, match="5 was acknowledged"):
        ledger.check(retention=False)


def test_ledger_refuses_an_offset_that_was_given_twice(ledger: Ledger) -> None:
    with pytest.raises(Violation, match="twice"):
        ledger.note(2, 4, 99)


def test_ledger_sees_another_message_in_the_place_of_one(ledger: Ledger) -> None:
    with MessageStore.open(ledger.path, SMALL) as store:
        store.append(TOPIC, 2, message(2, 6, 100))
    ledger.note(2, 5, 7)
    with pytest.raises(Violation, match="other bytes"):
        ledger.check(retention=False)


def test_ledger_sees_a_message_of_another_queue(ledger: Ledger) -> None:
    with MessageStore.open(ledger.path, SMALL) as store:
        store.append(TOPIC, 2, message(3, 6, 100))
    with pytest.raises(Violation, match="other bytes"):
        ledger.check(retention=False)


KIB = 1 << 10


def fill(ledger: Ledger, retention_bytes: int | None = None) -> int:
    """Note 200 messages of queue 0 and append them with this retention; the first that is left."""
    config = TunedConfig(segment_bytes=64 * KIB, recent_bytes=0, retention_bytes=retention_bytes)
    with MessageStore.open(ledger.path, config) as store:
        for seed in range(200):
            ledger.note(0, store.append(TOPIC, 0, message(0, seed, 5000)), seed)
        until(lambda: has_settled(store))
        return store.queue_bounds(TOPIC, 0)[0]


def life(retention_bytes: int | None) -> Plan:
    """One with this retention."""
    return Plan("", 0, {"retention_bytes": retention_bytes, "lanes": 1})


def test_ledger_gives_a_store_that_no_life_came_to_make_its_lanes(tmp_path: Path) -> None:
    made = Ledger(tmp_path / "store")
    made.begin(Plan("", 0, {"retention_bytes": None, "lanes": 4}))
    made.path.mkdir()  # and its first life ended
    assert made.check(retention=False) == 0
    with MessageStore.open(made.path, TunedConfig(lanes=4)) as store:
        assert len(store._lanes) == 4


def test_ledger_sees_messages_that_went_without_retention(tmp_path: Path) -> None:
    made = Ledger(tmp_path / "store")
    made.begin(life(None))
    with told_removals(lambda rows: made._gone.update((lane, segment) for lane, segment, _, _ in rows)):
        assert fill(made, 64 * KIB) > 100
    with pytest.raises(Violation, match="queue 0 begins at"):
        made.check(retention=False)


def test_ledger_sees_segments_that_went_without_a_word(tmp_path: Path) -> None:
    made = Ledger(tmp_path / "store")
    made.begin(life(64 * KIB))
    fill(made, 64 * KIB)
    with pytest.raises(Violation, match=r"gone without a word, .*\(0, 1\)"):
        made.check(retention=True)


@pytest.mark.parametrize("kept", [None, 4096 * KIB])
def test_ledger_sees_a_segment_that_went_too_early(tmp_path: Path, kept: int | None) -> None:
    made, going = Ledger(tmp_path / "store"), list[Row]()
    with told_removals(going.extend):
        left = 200 - fill(made, 500 * KIB)
    made.begin(life(kept))
    with pytest.raises(Violation, match=f"segment [0-9]+ of lane 0 goes with [0-9]+ messages .* keeps {kept}"):
        made.note_going(going)
    made.begin(life(500 * KIB))
    made.note_going(going)
    assert made.check(retention=True) == left


def test_ledger_lets_a_segment_without_messages_of_users_go_whatever_the_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has only subscribed is killed. Later a snapshot takes the place of its record."""
    monkeypatch.setattr(journal, "LEAST_BYTES", 300)
    made, going = Ledger(tmp_path / "store"), list[Row]()
    made.begin(life(None))
    for _ in range(2):
        with MessageStore.open(made.path, SMALL) as store:
            store.subscribe(TOPIC, KEPT)
            crash_copy(made.path, tmp_path / "killed")
        shutil.rmtree(made.path)
        (tmp_path / "killed").rename(made.path)
    fill(made)
    with told_removals(going.extend), MessageStore.open(made.path, SMALL) as store:
        sub = store.subscribe(TOPIC, KEPT)
        while given := sub.receive(1):
            sub.ack_batch(given)
        until(lambda: store.stats()["log"]["removed_segments"] > 0)
    assert [(lane, segment, messages) for lane, segment, messages, _ in going] == [(0, 1, 0)]
    made.note_going(going)
    made.note_consumer("asked", [(0, offset) for offset in range(200)])
    assert made.check(retention=False) == 200


def test_ledger_sees_a_retention_that_removes_nothing_or_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Ledger(tmp_path / "store")
    fill(made)
    made.begin(life(256 * KIB))
    assert made.check(retention=True) == 200
    assert made.check(retention=True) == 200, "the store itself was left as it was"
    with monkeypatch.context() as patched:
        patched.setattr(_OverLimit, "__call__", lambda _limit, sealed, at: at < 8)
        with pytest.raises(Violation, match=r"goes with [0-9]+ messages of users"):
            made.check(retention=True)
    monkeypatch.setattr("tests.soak.ledger.SETTLES_S", 0.5)
    monkeypatch.setattr(Removal, "_retire", lambda _removal: True)
    with pytest.raises(Violation, match=r"retention leaves [0-9]+ bytes, and may keep 262144"):
        made.check(retention=True)


def test_ledger_sees_an_acknowledged_message_that_comes_again(ledger: Ledger) -> None:
    with MessageStore.open(ledger.path, SMALL) as store:
        (given, *_) = store.subscribe(TOPIC, KEPT).receive(1)
    ledger.note_consumer("asked", [(2, given.message.offset)])
    assert ledger.check(retention=False) == 5
    ledger.note_consumer("acked", [(2, given.message.offset)])
    with pytest.raises(Violation, match="given out, and was acknowledged"):
        ledger.check(retention=False)


def test_ledger_sees_a_message_that_is_never_given_out(ledger: Ledger) -> None:
    with MessageStore.open(ledger.path, SMALL) as store:
        subscription = store.subscribe(TOPIC, KEPT)
        subscription.ack_batch(subscription.receive(3))
    with pytest.raises(Violation, match="never given out"):
        ledger.check(retention=False)
    ledger.note_consumer("asked", [(2, 0), (2, 1), (2, 2)])
    assert ledger.check(retention=False) == 5


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ([("asked", 0), ("acked", 0)], "was acknowledged"),
        ([("cancelling", 0), ("cancelled", 0)], "or cancelled"),
        ([], "early"),
        ([("moving", 50), ("moved", 50), ("moving", 120), ("moved", 120)], "20 ms early"),
    ],
)
def test_ledger_sees_what_may_not_come(tmp_path: Path, told: list[tuple[str, int]], wrong: str) -> None:
    made = Ledger(tmp_path / "store")
    made.note(1, 0, 9, 110)
    for what, time_ms in told:
        made.note_consumer(what, [(1, 0)], time_ms)
    with pytest.raises(Violation, match=wrong):
        made.note_consumer("came", [(1, 0)], 100)


def test_ledger_knows_what_an_unanswered_change_may_have_done(tmp_path: Path) -> None:
    made = Ledger(tmp_path / "store")
    made.note(1, 0, 9, 110)
    made.note_consumer("cancelling", [(1, 0)])
    made.note_consumer("moving", [(1, 0)], 50)
    made.end()
    made.note_consumer("came", [(1, 0)], 60)


# -- messages and plans -------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 16, 17, 100, 5000])
def test_message_says_what_it_is_and_any_change_is_seen(length: int) -> None:
    data = message(3, 12345, length)
    assert seed_of(3, data) == 12345
    assert seed_of(4, data) is None
    assert seed_of(3, data[:-1]) is None
    for at in {0, len(data) // 2, len(data) - 1}:
        assert seed_of(3, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) != 12345


def test_same_seed_draws_the_same_plans_and_all_kinds_come_up() -> None:
    seed = draw_seed()
    first, second = random.Random(seed), random.Random(seed)
    plans = [draw(first, "p", 1, number, 1.0) for number in range(400)]
    assert plans == [draw(second, "p", 1, number, 1.0) for number in range(400)]
    drawn = {plan.disk_fault["kind"] for plan, _ in plans if plan.disk_fault is not None}
    assert drawn == set(DISK_KINDS)
    for plan, _ in plans:
        plan.store_config()
    assert {plan.config["cache"] is None for plan, _ in plans} == {True, False}
    assert {plan.config["read_cache_bytes"] > 0 for plan, _ in plans} == {True, False}
    assert QUEUE_COUNT > 1
