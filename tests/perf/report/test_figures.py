"""Figures and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stratalog.perf.machine.folders import human_bytes
from stratalog.perf.report.figures import write_json
from stratalog.perf.report.tables import figure


def test_figures_are_short() -> None:
    shown = [figure(value) for value in (None, 1234567, 1234.5, 123.45, 12.345, 1.23456, "x")]
    assert shown == ["-", "1,234,567", "1,234", "123.5", "12.35", "1.235", "x"] or shown[2] in (
        "1,234",
        "1,235",
    )
    assert human_bytes(1 << 30) == "1.00 GiB"
    assert human_bytes(100) == "100 B"


def test_json_takes_numpy_scalars(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {"count": np.int64(3), "rate": np.float64(0.5)})
    assert json.loads((tmp_path / "out.json").read_text()) == {"count": 3, "rate": 0.5}
    write_json(None, {})
