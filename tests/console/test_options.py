"""What all commands have in common: --json, times, help, completion; and `tail`, `topics --bytes`, `cat --until`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from stratalog.console.times import duration_ms_of, time_ms_of
from stratalog.perf.commands.json_option import with_json
from stratalog.store import MessageStore

from ..clocks import WallClock
from .command import finish, process, run

DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store of two topics: 12 messages, a second apart, by turns of three queues."""
    now = [BEGIN_MS]
    with MessageStore.open(tmp_path / "store", clock=WallClock(lambda: now[0])) as store:
        for at in range(12):
            now[0] = BEGIN_MS + 1_000 * at
            store.append(*[("a", 0), ("a", 1), ("b", 0)][at % 3], b"%02d" % at)
    return tmp_path / "store"


def data(*arguments: object) -> list[str]:
    """The data of the messages that a command prints."""
    return [row["data"] for row in run(*arguments, "--json").rows]


# -- times --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms"),
    [("-5m", -300_000), ("+1h30m", 5_400_000), ("-2d", -2 * DAY_MS), ("-1w", -7 * DAY_MS), ("-500ms", -500),
     ("+1.5s", 1_500), ("now", 0)],
)  # fmt: skip
def test_times_are_relative_to_now(text: str, ms: int) -> None:
    before = time.time_ns() // 1_000_000
    assert before <= time_ms_of(text) - ms <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles"])
def test_times_are_local_unless_they_name_a_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        noon = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
        assert time_ms_of("2026-11-22T12:00Z") == time_ms_of("2026-11-22T13:00+01:00") == noon.timestamp() * 1000
        hours = {"UTC": 0, "Europe/Berlin": 1, "America/Los_Angeles": -8}[zone]
        assert time_ms_of("2026-11-22T12:00") == noon.timestamp() * 1000 - hours * 3_600_000
        assert time_ms_of("2026-11-22") == noon.timestamp() * 1000 - (hours + 12) * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_before_1970_are_its_beginning_and_numbers_are_ms() -> None:
    assert time_ms_of("-99999w") == time_ms_of("1960-01-01Z" if sys.version_info >= (3, 13) else "1960-01-01") == 0
    assert (time_ms_of("0"), time_ms_of("1700000000000")) == (0, BEGIN_MS)


@pytest.mark.parametrize(
    "text", ["soon", "", "-", "+", "-5", "5m", "-5x", "--5m", "-5m-3s", "-5 m", "٣", "-٣m", "9" * 30, "2026-13-01",
             "+99999999999999w", "nowish", "-" + "9" * 400 + "d"],
)  # fmt: skip
def test_what_is_no_time_is_said_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"is no time: give now, -5m, 2026-11-22T10:00 \(local; UTC with a Z"):
        time_ms_of(text)


def test_durations() -> None:
    assert [duration_ms_of(text) for text in ("0", "1500", "5m", "1h30m", "1.5s", "2d")] == [
        0, 1500, 300_000, 5_400_000, 1_500, 2 * DAY_MS,
    ]  # fmt: skip
    for text in ("-5m", "soon", "", "99999999999999w", "5 m"):
        with pytest.raises(typer.BadParameter, match="is no duration"):
            duration_ms_of(text)


def test_cat_ends_before_a_time(folder: Path) -> None:
    assert data("cat", folder, "--since", BEGIN_MS + 3_000, "--until", BEGIN_MS + 6_000) == ["03", "04", "05"]
    assert data("cat", folder, "--until", BEGIN_MS) == []
    assert data("cat", folder, "a", "--until", BEGIN_MS + 4_001, "--count", 3) == ["00", "03", "01"]
    assert data("cat", folder, "--since", "now") == []
    assert data("cat", folder, "--from", 3, "--until", "now") == ["09", "10", "11"]
    run("cat", folder, "-f", "--until", "now", code=2)


# -- tail ---------------------------------------------------------------------------------------------


def test_tail_prints_the_newest_in_the_order_of_their_times(folder: Path) -> None:
    assert data("tail", folder) == [f"{at:02}" for at in range(2, 12)]
    assert data("tail", folder, "-n", 3) == ["09", "10", "11"]
    assert data("tail", folder, "-n", 100) == [f"{at:02}" for at in range(12)]
    assert data("tail", folder, "a", "-n", 3) == ["07", "09", "10"]
    assert data("tail", folder, "a", 1, "-n", 2) == ["07", "10"]
    assert data("tail", folder, "-n", 0) == []
    assert run("tail", folder, "-n", 1).output.startswith("b/0 3 2023-11-14T22:13:31.000Z 11")
    run("tail", folder, "nope", code=4)
    run("tail", folder, "-n", -1, code=2)


def test_tail_goes_around_what_was_trimmed(folder: Path) -> None:
    run("trim", folder, "a", "--before", 3)
    assert data("tail", folder, "-n", 5) == ["05", "08", "09", "10", "11"]


@pytest.mark.parametrize("queue", [[], ["a"], ["a", 0]], ids=str)
def test_tail_follows_from_the_newest_on(folder: Path, queue: list[object]) -> None:
    with MessageStore.open(folder) as store:
        child = process("tail", folder, *queue, "-f", "-n", 1, "--json")
        assert child.stdout is not None
        try:
            first = json.loads(child.stdout.readline())
            assert first["data"] == {"[]": "11", "['a']": "10", "['a', 0]": "09"}[str(queue)]
            for at in range(3):
                store.append("a", 0, b"new %d" % at)
                assert json.loads(child.stdout.readline())["data"] == f"new {at}"
            if not queue:
                store.append("fresh", 0, b"fresh")
                assert json.loads(child.stdout.readline())["data"] == "fresh"
        finally:
            child.terminate()
            finish(child)


# -- JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["topics", "subscriptions", "inspect", "verify"])
def test_json_alone_prints_json_and_nothing_else(folder: Path, tmp_path: Path, command: str) -> None:
    alone = run(command, folder, "--json").output
    written: Sequence[object]
    for written in (["--json", "-"], ["--json=-"]):
        assert json.loads(run(command, folder, *written).output).keys() == json.loads(alone).keys()
    for written in (["--json", tmp_path / "one"], [f"--json={tmp_path / 'two'}"]):
        assert not run(command, folder, *written).output.startswith("{")
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one", "two"))
    assert one.keys() == two.keys() == json.loads(alone).keys()
    assert json.loads(run(command, "--json", "-", folder).output).keys() == one.keys()


@pytest.mark.parametrize("command", [["cat"], ["tail", "-n", "12"]], ids=lambda command: command[0])
def test_json_of_commands_that_print_messages_never_takes_the_next_argument(
    folder: Path, tmp_path: Path, command: list[str]
) -> None:
    lines = run(*command, folder, "a", "--json").output
    assert len(lines.splitlines()) == 8 and json.loads(lines.splitlines()[0])
    assert run(*command, "--json", folder, "a").output == run(*command, folder, "--json", "a").output == lines
    assert run(*command, folder, "a", f"--json={tmp_path / 'out'}").output == ""
    assert (tmp_path / "out").read_text() == lines
    assert "cannot be written" in run(*command, folder, f"--json={tmp_path}", code=2).output


def test_only_a_json_that_stands_alone_is_changed() -> None:
    assert with_json(["a", "--json"], takes_next=True) == ["a", "--json=-"]
    assert with_json(["a", "--json", "-"], takes_next=True) == ["a", "--json", "-"]
    assert with_json(["a", "--json", "--all", "x"], takes_next=True) == ["a", "--json=-", "--all", "x"]
    assert with_json(["a", "--json", "x"], takes_next=True) == ["a", "--json", "x"]
    assert with_json(["a", "--json", "x"], takes_next=False) == ["a", "--json=-", "x"]
    assert with_json(["--json=x", "--", "--json"], takes_next=True) == ["--json=x", "--", "--json"]


# -- topics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True], ids=["closed", "beside a writer"])
def test_topics_count_the_bytes_of_data_when_asked(folder: Path, beside: bool) -> None:
    with MessageStore.open(folder) as store:
        store.append("b", 0, bytes(5_000), key=b"key")
        if beside:
            shown = run("topics", folder, "--bytes")
    if not beside:
        shown = run("topics", folder, "--bytes")
    assert [line.split(", ")[2] for line in shown.output.splitlines()] == ["16 B", "4.9 KiB"]
    assert [row["bytes"] for row in json.loads(run("topics", folder, "--bytes", "--json").output)["topics"]] == [
        16,
        5008,
    ]
    assert "bytes" not in json.loads(run("topics", folder, "--json").output)["topics"][0]


# -- what is counted, help, completion ----------------------------------------------------------------


def test_inspect_and_verify_say_that_they_count_the_stores_own_records(folder: Path) -> None:
    assert "of them" not in run("inspect", folder).output.splitlines()[0]
    with MessageStore.open(folder) as store, store.subscribe("a", "s") as sub:
        for delivery in sub.receive(5):
            sub.ack(delivery)
    first = run("inspect", folder).output.splitlines()[0]
    count = int(first.split()[1])
    assert count > 12
    assert f"{count} messages in 3 queues ({count - 12} of them the store's own records, or deleted)" in first
    assert "; the store's own records and deleted messages count too" in run("verify", folder).output


def test_h_is_help_in_each_command() -> None:
    for command in ([], ["cat"], ["append"], ["bench"], ["bench", "hotcold"], ["spark"], ["spark", "verify"]):
        assert run(*command, "-h").output == run(*command, "--help").output


def test_exit_codes_are_told_by_the_help_of_the_command_itself_alone() -> None:
    assert "Exit codes: 0 done" in run("--help").output
    for command in (["cat"], ["append"], ["verify"], ["bench"], ["spark", "load"]):
        assert "Exit codes" not in run(*command, "--help").output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_commands_and_options(shell: str, tmp_path: Path) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "stratalog delete-", "COMP_WORDS": "stratalog delete-", "COMP_CWORD": "1"}
    given = {
        **os.environ,
        **words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_STRATALOG_COMPLETE": f"complete_{shell}",
    }
    program = "import sys; sys.argv[0] = 'stratalog'; from stratalog.console import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, cwd=Path(__file__).parents[2],
        timeout=100, check=False,
    )  # fmt: skip
    assert "delete-topic" in done.stdout and "delete-subscription" in done.stdout, done.stderr
    source = {**os.environ, "_STRATALOG_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=source, capture_output=True, text=True, cwd=Path(__file__).parents[2],
        timeout=100, check=False,
    )  # fmt: skip
    assert "_STRATALOG_COMPLETE" in done.stdout and "stratalog" in done.stdout


def test_commands_load_neither_pyarrow_nor_pyspark() -> None:
    program = (
        "import sys; from stratalog.console import app;"
        "print(sorted({'pyarrow', 'pandas', 'pyspark', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=100,
        check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"
