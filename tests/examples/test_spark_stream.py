"""The stream of the example, in the session that the tests of the pipeline share."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from .pages import ROOT, printed_by

pytest.importorskip("pyspark")

from ..pipeline.conftest import SETTINGS, spark  # it needs PySpark

__all__ = ["spark"]  # the fixture


def test_the_stream_prints_what_its_page_says(
    spark: Any,  # the fixture
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "spark_stream" / "hourly.py"))
    assert example["SETTINGS"].items() <= SETTINGS.items()
    example["main"](spark, str(tmp_path))
    assert capsys.readouterr().out == printed_by("spark_stream")
