"""What watching costs: a short run has each way, and the shares are those beside slices that nobody watches."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog import MessageStore
from stratalog.perf.experiments import metrics
from stratalog.perf.experiments.metrics import Slice, added_ms, shares, teller_of, telling_ms, top_beside
from stratalog.perf.report.files import read_report
from stratalog.perf.workload.checker import WrongResult

from ..short import figures_of


def test_each_way_of_watching_has_its_figures_and_none_is_better_by_itself(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "metrics", "--report", str(tmp_path))
    measures = read_report(tmp_path / "metrics.json").measures()
    for way in ("top", "scraped", "control"):
        assert measures[f"metrics.{way}.share"].unit == "%" and f"metrics.idle.{way}" in measures
        assert measures[f"metrics.{way}.telling"].unit == "ms"
        assert measures[f"metrics.{way}.share"].better == "neither"
    assert measures["metrics.alone.us"].value > 0 and figures["checked_messages"] > 0
    assert any("`stratalog top` itself takes" in line for line in figures["summary"])


def test_shares_are_those_beside_the_slices_before_and_after() -> None:
    before, beside, after = Slice(1.0, 100, 0.1), Slice(1.0, 50, 0.06), Slice(1.0, 100, 0.14)
    assert shares([(before, beside, after)]) == pytest.approx((0.0,), abs=1e-9)
    idle = Slice(2.0, 0, 0.002), Slice(2.0, 0, 0.006), Slice(2.0, 0, 0.002)
    assert added_ms([idle]) == pytest.approx((2.0,))


def test_telling_is_what_its_thread_and_new_threads_take_more() -> None:
    before, beside, after = (
        Slice(1.0, 10, 1.0, None, {1: work, 2: tells, **more})
        for work, tells, more in ((0.9, 0.001, {}), (0.2, 0.003, {3: 0.004}), (0.9, 0.003, {}))
    )
    assert teller_of([(before, beside, after)]) == 3
    assert telling_ms([(before, beside, after)], 2) == pytest.approx((5.0,))


def test_top_that_shows_nothing_is_an_error_with_its_reason(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    with pytest.raises(WrongResult, match="nobody has the"), top_beside(tmp_path / "store"):
        pass


def test_message_that_is_not_what_was_appended_is_a_wrong_result(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        worker = metrics.Worker(store, 1, 10)
        assert worker.work(0.01) % metrics.BATCH == 0
        store.append("topic-0", 0, b"another")
        with pytest.raises(WrongResult):
            worker.work(0.01)
