"""The console command: bench, inspect, verify and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from perf import console
from perf.options import run_app
from store import MessageStore, StoreError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store of two messages."""
    home = tmp_path / "store"
    with MessageStore.open(home) as store:
        store.append("orders", 1, b"one")
        store.append("orders", 1, b"two")
    return home


def test_bench_has_the_measurements() -> None:
    shown = CliRunner().invoke(console.app, ["bench", "--help"])
    assert shown.exit_code == 0
    for name in ("hotcold", "alignment", "prewrite", "lanes", "recovery", "batch", "reads", "memory", "cache"):
        assert name in shown.output


def test_inspect_shows_and_writes_json(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = CliRunner().invoke(console.app, ["inspect", str(folder), "--json", str(out)])
    assert shown.exit_code == 0, shown.output
    assert isinstance(json.loads(out.read_text()), dict)


def test_verify_of_an_unharmed_store_exits_with_0(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = CliRunner().invoke(console.app, ["verify", str(folder), "--json", str(out)])
    assert shown.exit_code == 0, shown.output
    assert "unharmed" in shown.output
    figures = json.loads(out.read_text())
    assert (figures["ok"], figures["messages"], figures["damages"]) == (True, 2, [])


def test_verify_of_a_damaged_store_exits_with_1(folder: Path) -> None:
    harmed = 0
    for path in folder.rglob("*"):
        data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        if (at := data.find(b"two")) >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            harmed += 1
    assert harmed == 1
    shown = CliRunner().invoke(console.app, ["verify", str(folder)])
    assert shown.exit_code == 1, shown.output


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_no_store_exits_with_2(tmp_path: Path, command: str) -> None:
    (tmp_path / "letter.txt").write_text("not a store")
    assert CliRunner().invoke(console.app, [command, str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(console.app, [command, str(tmp_path / "nowhere")]).exit_code == 2


def test_refusal_of_the_store_is_a_sentence_and_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer()

    @app.command()
    def refuse() -> None:
        raise StoreError("the folder is in use")

    monkeypatch.setattr("sys.argv", ["refuse"])
    with pytest.raises(SystemExit) as ended:
        run_app(app, "refuse")
    assert ended.value.code == 3
    assert "the folder is in use" in capsys.readouterr().err
