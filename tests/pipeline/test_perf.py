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
