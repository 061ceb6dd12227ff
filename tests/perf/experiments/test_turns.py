from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.perf.machine.checkouts import NoCheckout
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.stream_calls import CALLS

from ...checkout import copy_checkout
from ..short import error_of, report_of_run


def test_each_call_is_measured_beside_another_checkout_and_its_copy(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "turns", "--against", str(copy_checkout(tmp_path / "other")))
    found = report.measures()
    assert found.keys() == {f"{call}.{figure}" for call in CALLS for figure in ("speed", "mean_speed", "us")}
    for call in CALLS:
        speed, median = found[f"{call}.speed"], found[f"{call}.us"]
        assert median.reference is not None and speed.reference is not None and speed.reference > 0
        assert speed.value == pytest.approx(median.reference / median.value)
    assert report.checked_messages > 0


def test_a_code_that_reads_something_else_is_told(tmp_path: Path) -> None:
    other = copy_checkout(tmp_path / "other")
    calls = other / "store" / "api" / "read_calls.py"
    before = "return self._fetcher.read(topic, queue_id, offset,"
    assert calls.read_text().count(before) == 1
    calls.write_text(calls.read_text().replace(before, before.replace("offset", "offset + 1")))
    assert isinstance(error_of(tmp_path, "turns", "--only", "read of 4", "--against", str(other)), WrongResult)


def test_a_folder_without_the_code_is_said(tmp_path: Path) -> None:
    assert isinstance(error_of(tmp_path, "turns", "--against", str(tmp_path)), NoCheckout)


def test_a_name_that_no_call_has_is_said(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "turns", "--only", "nothing of this name")
    assert "No call has" in report.summary[-1] and report.chapters == ()
