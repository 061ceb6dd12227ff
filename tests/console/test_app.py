"""The console command: bench, inspect, verify and their exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from stratalog.console import app as console
from stratalog.console.ends import code_of, told
from stratalog.perf.commands.app import app as bench_app
from stratalog.perf.commands.end import run_app
from stratalog.perf.machine.folders import run_folder
from stratalog.perf.workload.checker import WrongResult
from stratalog.store import (
    MessageStore,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreUnreadable,
    StoreUnusable,
)
from stratalog.store.testing import TunedConfig

SMALL = TunedConfig(lanes=2, segment_bytes=64 << 10, max_message_bytes=16_384, max_frame_bytes=16_384, recent_bytes=0)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console on which every table is one table."""
    monkeypatch.setenv("COLUMNS", "200")


class Shown(NamedTuple):
    """What a call of the console command gave."""

    exit_code: int
    output: str


def run(*arguments: object) -> Shown:
    """A call of the console command."""
    done = CliRunner().invoke(console.app, [str(argument) for argument in arguments])
    return Shown(done.exit_code, done.output)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store of two messages."""
    home = tmp_path / "store"
    with MessageStore.open(home) as store:
        store.append("orders", 1, b"one")
        store.append("orders", 1, b"two")
    return home


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A closed store of two lanes with sealed segments, and 25 queues."""
    home = tmp_path / "sealed"
    with MessageStore.open(home, SMALL) as store:
        for _ in range(20):
            store.append_batch([("t", queue, bytes(1000)) for queue in range(25)])
    return home


def test_bench_has_the_measurements() -> None:
    shown = CliRunner().invoke(console.app, ["bench", "--help"])
    assert shown.exit_code == 0
    for name in ("host", "peers", "hotcold", "memory", "readers", "endpoint", "spark"):
        assert name in shown.output


def test_version_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "__version__", "1.2.3")
    shown = run("--version")
    assert (shown.exit_code, shown.output) == (0, "stratalog 1.2.3\n")


# -- inspect ------------------------------------------------------------------------------------------


def test_inspect_shows_and_writes_json(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = run("inspect", folder, "--json", out)
    assert shown.exit_code == 0, shown.output
    sentence = "healthy: 2 messages in 1 queue; whether each byte is right, verify tells"
    assert shown.output.startswith(f"{sentence}\n{folder}\n")
    figures = json.loads(out.read_text())
    assert figures["verdict"] == "healthy"
    assert figures["queues"] == [{"topic": "orders", "queue": 1, "first": 0, "next_offset": 2}]
    assert figures["problems"] == []
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.output.splitlines()]
    assert ["messages", "2"] in cells and ["segments", "1 closed"] in cells
    assert ["orders", "1", "0", "2"] in cells
    (segment,) = [row for row in cells if row and row[0].endswith(".seg")]
    assert segment[1:3] == ["closed", "2"]
    assert all(len(time) == 20 and time[10] == "T" and time[-1] == "Z" for time in segment[4:])
    assert "on this machine" not in shown.output
    assert "on this machine" in run("inspect", folder, "--plan").output


def test_inspect_writes_only_json_to_standard_output_when_asked(folder: Path) -> None:
    assert json.loads(run("inspect", folder, "--json", "-").output)["streams"] == 1


def test_inspect_shows_twenty_queues_and_says_how_many_more(sealed: Path) -> None:
    shown = run("inspect", sealed).output
    assert shown.count("│ t ") == 20
    assert ".. and 5 more; --all shows them" in shown
    shown = run("inspect", sealed, "--all").output
    assert shown.count("│ t ") == 25
    assert "more" not in shown


NAMES = ["[/orders]", "[red]x[/red]", ":smile:", "[link=a]b", "it's\\"]


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path: Path, command: str) -> None:
    home = tmp_path / "[/bold]"
    with MessageStore.open(home) as store:
        for name in NAMES:
            store.append(name, 0, b"x")
    shown = run(command, home)
    assert shown.exit_code == 0, shown.output
    if command == "inspect":
        assert all(f"│ {name} " in shown.output for name in NAMES)
        assert f"\n{home}\n" in shown.output
    path = home / "lane-00" / "000000000001.seg"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    shown = run(command, home)
    assert shown.exit_code == 1
    assert f"{path} at byte 0\n" in shown.output


def test_name_that_would_steer_the_terminal_is_shown_escaped(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.append("a\u202eb", 0, b"x")
    assert "│ a\\u202eb " in run("inspect", tmp_path / "store").output


def spoil_footer(home: Path) -> Path:
    """Flip a bit of the last byte of a sealed segment's footer."""
    path = home / "lane-00" / "000000000001.seg"
    raw = bytearray(path.read_bytes())
    raw[len(raw.rstrip(b"\0")) - 1] ^= 1
    path.write_bytes(raw)
    return path


def remove_segment(home: Path) -> Path:
    path = home / "lane-00" / "000000000002.seg"
    path.unlink()
    return path


def remove_lane(home: Path) -> Path:
    path = home / "lane-01"
    shutil.rmtree(path)
    return path


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize("spoil", [spoil_footer, remove_segment, remove_lane])
def test_damage_is_shown_with_its_file_and_exits_with_1(
    sealed: Path, tmp_path: Path, command: str, spoil: Callable[[Path], Path]
) -> None:
    path, out = spoil(sealed), tmp_path / "out.json"
    shown = run(command, sealed, "--json", out)
    assert shown.exit_code == 1, shown.output
    figures = json.loads(out.read_text())
    places = figures["problems" if command == "inspect" else "damages"]
    assert places and all(place.keys() == {"what", "file", "position"} for place in places)
    assert places[0]["file"] == str(path)
    lines = shown.output.splitlines()[-1 - len(places) :]
    for place in places:
        assert f"{place['what']} in {place['file']} at byte {place['position']}" in lines


# -- verify -------------------------------------------------------------------------------------------


def test_verify_of_an_unharmed_store_exits_with_0(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = run("verify", folder, "--json", out)
    assert shown.exit_code == 0, shown.output
    assert re.match(r"2 messages in 2 frames, ", shown.output)
    assert shown.output.endswith("unharmed\n")
    figures = json.loads(out.read_text())
    assert (figures["ok"], figures["messages"], figures["damages"]) == (True, 2, [])
    assert (figures["segments"], figures["torn_bytes"], figures["remarks"]) == (1, 0, [])


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 3), (errno.ENOSPC, 3), (errno.ENOTDIR, 4), (None, 4)])
def test_folder_that_the_system_refuses_is_told_from_one_that_is_no_store(number: int | None, code: int) -> None:
    error = StoreUnusable("cannot be used")
    error.__cause__ = OSError(number, "said the system") if number is not None else None
    assert code_of(error) == code


def test_one_message_is_no_plural(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.append("t", 0, b"x")
    assert re.match(r"1 message in (1 frame|2 frames), ", run("verify", tmp_path / "store").output)


def test_verify_of_a_damaged_store_shows_the_place_and_exits_with_1(folder: Path, tmp_path: Path) -> None:
    (path,) = [path for path in folder.rglob("*.seg") if b"two" in path.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.find(b"two")] ^= 1
    path.write_bytes(data)
    shown = run("verify", folder, "--json", tmp_path / "out.json")
    assert shown.exit_code == 1, shown.output
    (place,) = json.loads((tmp_path / "out.json").read_text())["damages"]
    assert place["file"] == str(path)
    assert shown.output.splitlines()[-2:] == [
        f"{place['what']} in {path} at byte {place['position']}", "damaged: 1 place",
    ]  # fmt: skip


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["inspect", "verify", "cat", "topics"])
def test_what_is_no_store_is_said_and_exits_with_4(tmp_path: Path, command: str) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("not a store")
    (tmp_path / "empty").mkdir()
    for name in ("letters", "empty"):
        shown = run(command, tmp_path / name)
        assert shown.exit_code == 4
        assert f"{tmp_path / name} is no store: it has no STORE file" in shown.output
        assert "empty or" not in shown.output
    shown = run(command, tmp_path / "nowhere")
    assert shown.exit_code == 4
    assert "does not exist" in shown.output


def test_damaged_header_of_the_store_is_a_sentence_and_exits_with_1(folder: Path) -> None:
    (folder / "STORE").write_bytes(b"rubbish")
    shown = run("inspect", folder)
    assert shown.exit_code == 1
    assert f"in {folder / 'STORE'} at byte 0" in shown.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreCorrupt("x", "file", 0), 1), (StoreUnreadable("x"), 3), (StoreUnusable("x"), 4), (StoreLocked("x"), 5),
        (StoreError("x"), 3),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_refusal_is_its_sentence_on_standard_error_and_a_code(
    capsys: pytest.CaptureFixture[str], error: StoreError, code: int
) -> None:
    with pytest.raises(typer.Exit) as ended, told():
        raise error
    assert ended.value.exit_code == code
    assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["inspect"], ["verify"], ["bench", "hotcold"], ["bench", "memory"], ["bench", "peers"]], ids="".join
)
def test_json_that_cannot_be_written_is_a_usage_error_before_the_work(
    folder: Path, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_arguments: object, **_options: object) -> None:
        raise AssertionError("it was begun")

    for name in ("inspect_folder", "verify_folder"):
        monkeypatch.setattr(console, name, work)
    (tmp_path / "runs").mkdir()
    where = [folder] if len(command) == 1 else ["--dir", tmp_path / "runs"]
    for out in (tmp_path / "nowhere" / "out.json", tmp_path):
        shown = run(*command, *where, "--json", out)
        assert shown.exit_code == 2, shown.output
        assert "cannot be written" in shown.output
    assert list((tmp_path / "runs").iterdir()) == []


def test_json_file_is_not_left_behind_by_a_refusal(tmp_path: Path) -> None:
    assert run("verify", tmp_path / "nowhere", "--json", tmp_path / "out.json").exit_code == 4
    assert not (tmp_path / "out.json").exists()


# -- how a command ends -------------------------------------------------------------------------------


def end_of(body: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of an app whose one command is `body`."""
    app = typer.Typer()
    app.command()(body)
    monkeypatch.setattr("sys.argv", ["command"])
    with pytest.raises(SystemExit) as ended:
        run_app(app, "command")
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (StoreError("the folder is in use"), 3, "the folder is in use"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "No space left on device"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/a/[b]"), 3, "Not a directory (/a/[b])"),
        (WrongResult("2 of 3 messages"), 1, "2 of 3 messages"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_end_is_a_sentence_and_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, sentence: str
) -> None:
    def fail() -> None:
        raise error

    assert end_of(fail, monkeypatch) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_sigterm_removes_the_folder_and_is_as_before_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = signal.getsignal(signal.SIGTERM), list[Path]()

    def work() -> None:
        with run_folder(tmp_path) as folder:
            (folder / "data").write_bytes(bytes(100))
            seen.append(folder)
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    assert end_of(work, monkeypatch) == 143
    assert seen and list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def bench_end(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    """The exit code of a measurement."""
    monkeypatch.setattr("sys.argv", ["perf", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        run_app(bench_app, "perf")
    return ended.value.code


def test_folder_that_does_not_exist_is_said_with_exit_code_2_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    told = {"file": "is a file and no folder", "file/below": "there is no folder", "mistyped": "there is no folder"}
    for where, why in told.items():
        assert bench_end(monkeypatch, "hotcold", "--short", "--dir", tmp_path / where) == 2
        assert why in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("command", ["hotcold", "peers", "memory"])
def test_negative_seed_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    assert bench_end(monkeypatch, command, "--seed", "-1") == 2


@pytest.mark.parametrize(
    "arguments",
    [["hotcold", "--size", "3GB"], ["tail_catchup", "--backlog", "3GB"], ["memory", "--messages", "30000000"],
     ["subscriptions", "--messages", "30000000"]],
    ids=" ".join,
)  # fmt: skip
def test_run_that_would_fill_the_disk_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=3 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert bench_end(monkeypatch, *arguments, "--dir", tmp_path) == 3
    said = capsys.readouterr().err
    assert "2.79 GiB free" in said and str(tmp_path) in said
    assert list(tmp_path.iterdir()) == []
