"""Rounds by turns, the references of a run, and write amplification."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from stratalog.perf.experiments.amplification import amplification, footer_bytes
from stratalog.perf.experiments.hotcold_run import Options, references
from stratalog.perf.experiments.parts import Count, Part, measured
from stratalog.perf.references.rawfile import round_up
from stratalog.perf.report.progress import Run
from stratalog.perf.workload.phases import Drive
from stratalog.store import MessageStore
from stratalog.store.testing import TunedConfig
from tests.perf.references.recorder import Recorder

RATE = (Count(figure="rate", what="rate", unit=""),)


def test_parts_take_turns_and_every_second_round_goes_backwards() -> None:
    made: list[str] = []

    def way(name: str) -> dict[str, float]:
        made.append(name)
        return {"rate": len(made)}

    parts = [Part(name, partial(way, name), RATE) for name in "abc"]
    found = measured(parts, 3, Run("x", Console(quiet=True)))
    assert "".join(made) == "abccbaabc"
    assert list(found) == ["a.rate", "b.rate", "c.rate"]
    assert found["a.rate"].values == (1, 6, 7)


def test_device_is_measured_at_the_mean_write_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    options = Options(drive=Drive("batch"), reference_s=0.02, reference_file_bytes=1 << 20)
    figures = references(options, tmp_path, 123_457, 1)
    assert set(recorder.sizes[1:]) == {round_up(123_457)}
    assert figures.keys() == {"device.mb_per_s"}  # one producer waits for nobody


def test_write_amplification_is_said_with_footers_and_with_the_zeros_of_pre_writing(tmp_path: Path) -> None:
    config = TunedConfig(
        segment_bytes=64 << 10, prewrite_bytes=256 << 10, max_frame_bytes=16_384, max_message_bytes=16_384
    )
    with MessageStore.open(tmp_path / "store", config) as store:
        for _ in range(100):
            store.append_batch([("t", queue, bytes(500)) for queue in range(20)])
    with MessageStore.open(tmp_path / "store", config) as store:
        assert store.stats()["segments"]["sealed"] > 1
    footers, payload_bytes = footer_bytes(tmp_path / "store"), 100 * 20 * 500
    log = {"written_bytes": 1_200_000, "prewritten_bytes": 1_500_000}
    found = amplification(log, payload_bytes, tmp_path / "store")
    assert footers > 2000 * 4  # sealed segments have a few bytes a message
    assert found["write_amplification"] == 1.2
    assert found["write_amplification_with_footers"] == pytest.approx((1_200_000 + footers) / payload_bytes)
    assert found["write_amplification_with_prewriting"] == pytest.approx((2_700_000 + footers) / payload_bytes)
