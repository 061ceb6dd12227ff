"""The measurements of timers and of waiting requests run in their short form, and what they compare is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.index import DelayedOperation
from stratalog.perf.experiments.purgatory import bar, sustained
from stratalog.perf.references.old_purgatory import OldPurgatory
from stratalog.perf.references.timers import WAYS, Timers
from stratalog.perf.workload.requests import PROFILES
from tests.perf.short import figures_of
from tests.seeds import draw_seed


def test_purgatory_has_a_row_a_profile_and_design(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "purgatory")
    rows = {(row["profile"], row["design"]): row for row in figures["rows"]}
    assert rows.keys() == {(profile.name, design) for profile in PROFILES for design in ("none", "old", "new")}
    for (_, design), row in rows.items():
        assert row["requests"] == 1_000
        assert row["early_expiries"] == 0
        assert (0 < row["timed_out"] < 1_000) == (design != "none")
        assert 0 < row["most_pending"] <= 1_000
        assert row["achieved_per_s"] > 0 and row["cpu_us_per_request"] > 0
    assert {row["latencies"] for row in figures["sustained_per_s"]} == {profile.name for profile in PROFILES}


def test_purgatory_on_a_virtual_clock_has_the_same_ends_by_both_designs(tmp_path: Path) -> None:
    rows = figures_of(tmp_path, "purgatory", "--virtual")["rows"]
    for old, new in zip(rows[::2], rows[1::2], strict=True):
        assert (old["design"], new["design"]) == ("old", "new")
        assert old["pending"] == pytest.approx(new["pending"], abs=50)
        assert old["timed_out"] == pytest.approx(new["timed_out"], rel=0.1)
        assert old["interpreters"] > 0 and new["interpreters"] > 0


def test_highest_rate_is_the_last_one_that_was_kept_up_with() -> None:
    rows = [
        {"profile": "p", "design": design, "target_per_s": target, "achieved_per_s": target * part, "requests": target,
         "backlog_ms": backlog_ms}
        for design, backlog_ms in (("old", 2.0), ("new", 31.0))
        for target, part in ((10, 1.0), (20, 0.98), (40, 0.9))
    ]  # fmt: skip
    assert sustained(rows) == [{"latencies": "p", "old": 20, "new": None}]
    assert bar({**rows[2], "achieved_per_s": 20.0}).count("#") == 20


def test_latencies_have_the_percentiles_of_their_profile() -> None:
    for one in PROFILES:
        drawn = one.draw_ms(200_000, np.random.default_rng(draw_seed()))
        assert np.percentile(drawn, (50, 75)) == pytest.approx((one.p50_ms, one.p75_ms), rel=0.05)


def test_old_design_completes_each_request_once_and_forgets_it() -> None:
    class Counted(DelayedOperation):
        completions = 0

        def on_complete(self) -> None:
            self.completions += 1

    old = OldPurgatory(purge_interval=10)
    try:
        operations = [Counted(20 if number % 2 else 3_600_000) for number in range(200)]
        for operation in operations:
            assert not old.try_complete_else_watch(operation, ["a", "b"])
        for operation in operations[::2]:
            operation.force_complete()
        while not all(operation.is_completed for operation in operations):
            pass
        last = Counted(1)
        old.try_complete_else_watch(last, ["a"])
        while old._watched >= 10 or len(old._heap) >= 10:
            pass
    finally:
        old.close()
    assert {operation.completions for operation in operations} == {1}


def test_timers_has_a_row_a_way_and_the_lateness(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "timers")
    rows = {row["way"]: row for row in figures["rows"]}
    assert rows.keys() == {way.NAME for way in WAYS}
    for row in rows.values():
        assert row["pending"] == 1_000
        assert min(row["fill_m_per_s"], row["expire_m_per_s"], row["insert_ns"], row["cancel_ns"]) > 0
    assert rows["BulkTimingWheel"]["bytes_per_timer"] > 0
    assert figures["lateness"]["early"] == 0
    p50, p99, most = (figures["lateness"][f"late_{name}_ms"] for name in ("p50", "p99", "max"))
    assert p50 <= p99 <= most


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.NAME)
def test_every_way_fires_what_was_not_cancelled(way: type[Timers]) -> None:
    timers, deadlines = way(), np.array([5, 9, 5, 300, 7], np.int64)
    handles = timers.add(deadlines if way.IN_BULK else deadlines.tolist())
    assert timers.cancel(handles[1:3]) == 2
    assert [timers.advance(now_ms) for now_ms in (4, 5, 100, 300)] == [0, 1, 1, 1]
