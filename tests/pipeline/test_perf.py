"""The measurement of Spark in its short form: reads, writes, and more workers; and what is a wrong result."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.perf.experiments import spark_options, spark_reads, spark_scale
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.filling import fill
from tests.perf.short import error_of, report_of_run


@pytest.mark.usefixtures("spark")  # it borrows the session
def test_spark_measures_reads_writes_and_workers_over_compared_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_options, "WARM_UP", 0)  # nobody looks at the rates
    report = report_of_run(tmp_path, "spark")
    measures = report.measures()
    for name in spark_reads.WAYS:
        assert measures[f"read.{name}.rows_per_s"].value > 0
        assert (measures[f"read.{name}.rows_per_s"].reference is None) == (name not in spark_reads.BESIDE)
    assert {f"write.{way}.mb_per_s" for way in ("store", "bare", "parquet")} <= measures.keys()
    assert measures["write.store.rows_per_s"].reference == measures["write.bare.rows_per_s"].value
    assert report.chapters[2].charts[0].x == spark_scale.WORKERS
    read = written = (1 << 20) // 500
    assert report.checked_messages >= read + written


@pytest.mark.usefixtures("spark")  # as above
def test_rows_that_were_not_read_are_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_options, "fill", lambda *arguments: fill(*arguments) + 1)
    assert isinstance(error_of(tmp_path, "spark", "--only", "reads"), WrongResult)
