"""The measurement of bulk reads runs in its short form and gives the figures that its readers look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perf.short import figures_of


@pytest.mark.usefixtures("spark")  # it borrows the session
def test_spark_measures_each_way_over_the_same_rows(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "spark", "--size", "1MiB", "--message", "500", "--partition", "204800")
    assert figures["messages"] == (1 << 20) // 500 == figures["checked_messages"]
    assert figures["ways"].keys() == {
        "stratalog", "bare Arrow", "stratalog, touched", "Parquet, touched", "stratalog without data"
    }  # fmt: skip
    for ratio in ("bare_ratio", "parquet_ratio", "without_data_ratio"):
        assert figures[ratio] > 0


@pytest.mark.usefixtures("spark")  # as above
def test_sparkscale_measures_workers_and_calculates_a_cluster(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "sparkscale", "--partition", "65536")
    assert [row["workers"] for row in figures["workers"]] == [1, 2, 4, 8]
    assert [row["parts"] for row in figures["parts"]] == [1, 2, 4]
    cluster = figures["cluster"]
    assert cluster["total_s"] >= cluster["plan_s"] + cluster["device_s"] and cluster["device_s"] == 1000
