"""The measurement of waiting requests runs in its short form, and what it compares is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.index import DelayedOperation
from stratalog.perf.experiments import purgatory_virtual
from stratalog.perf.experiments.purgatory import NEW, NONE, OLD
from stratalog.perf.references.old_purgatory import NoPurgatory, OldPurgatory
from stratalog.perf.workload import requests
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.requests import PROFILES, Drive, Load
from tests.perf.short import report_of_run
from tests.seeds import draw_seed
from tests.store.helpers import until


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_purgatory_has_the_rates_and_costs_of_each_profile_and_design(tmp_path: Path, clock: str) -> None:
    report = report_of_run(tmp_path, "purgatory", *(["--virtual"] if clock == "virtual" else []))
    assert [len(one.charts) for one in report.chapters] == [2] * len(PROFILES)
    measures = report.measures()
    for profile in PROFILES:
        for design in (OLD, NEW) if clock == "virtual" else (NONE, OLD, NEW):
            name = f"purgatory.{clock}.{profile.p50_ms:g}.{design}"
            assert measures[f"{name}.sustained"].value in (0, 2_000)
            assert measures[f"{name}.reached"].value > 0 and measures[f"{name}.2000.cpu_us"].value > 0
            assert (f"{name}.2000.p99" in measures) == (clock == "real" and design != NONE)


def test_both_designs_have_the_same_ends_on_a_virtual_clock() -> None:
    for profile in PROFILES:
        load = Load(profile, 2_000, 1_000, 200, 100, draw_seed())
        old, new = (purgatory_virtual.run(is_new, load, 1_000) for is_new in (False, True))
        assert old["pending"] == pytest.approx(new["pending"], abs=50)
        assert 0 < old["timed_out"] < 1_000
        assert old["timed_out"] == pytest.approx(new["timed_out"], rel=0.1)


def test_request_that_never_ends_or_ends_early_is_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "GIVE_UP_S", 0.1)
    load = Load(PROFILES[1], 2_000, 50, 20, 100, 1)
    with pytest.raises(WrongResult, match="ends of 50"):  # nobody expires them
        Drive(load).run(NoPurgatory())
    drive = Drive(load, times_out=False)
    drive.ends.late_ns.append(-1)
    with pytest.raises(WrongResult, match="1 of 50 requests expired early"):
        drive.run(NoPurgatory())


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
        until(lambda: all(operation.is_completed for operation in operations))
        last = Counted(1)
        old.try_complete_else_watch(last, ["a"])
        until(lambda: old._watched < 10 and len(old._heap) < 10)
    finally:
        old.close()
    assert {operation.completions for operation in operations} == {1}
