"""`stratalog cat` and `stratalog topics`: what they write, what they leave alone, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.console.ends import MEANINGS
from stratalog.store import MessageStore, StoreConfig, StoreCorrupt, look_into_folder

from ..clocks import WallClock
from ..store.helpers import PATIENCE_S, crash_copy, flip_bit, full_frames, place_of, segment_path, take_snapshot, tiny

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"^(\S+)/(\d+) (\d+) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (.*)$")


class Shown(NamedTuple):
    exit_code: int
    output: str


def run(*arguments: object) -> Shown:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return Shown(done.exit_code, done.output)


def process(*arguments: object) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "stratalog.console", *map(str, arguments)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store of two topics and three queues."""
    home = tmp_path / "store"
    with MessageStore.open(home, StoreConfig(lanes=2)) as store:
        for number in range(6):
            store.append("orders", number % 2, b"order %d" % number)
        store.append(
            "bytes", 7, b"\xff\n\x1b[31m", key=b"k\xfe", properties={"a": "b c"}, deliver_at_ms=1_000_000_000_123
        )
    return home


def queues_of(output: str) -> list[tuple[str, str, str, str]]:
    """(topic, queue, offset, rest) of each line."""
    found = [LINE.match(line) for line in output.splitlines()]
    assert all(found), output
    return [(match[1], match[2], match[3], match[5]) for match in found if match]


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_all_messages_are_lines_queue_by_queue(folder: Path) -> None:
    shown = run("cat", folder)
    assert shown.exit_code == 0
    assert queues_of(shown.output) == [
        ("bytes", "7", "0", r"deliver_at=2001-09-09T01:46:40.123Z key=k\xfe a=b c \xff\n\x1b[31m"),
        *(("orders", "0", str(at), f"order {2 * at}") for at in range(3)),
        *(("orders", "1", str(at), f"order {2 * at + 1}") for at in range(3)),
    ]


def test_json_lines_have_all_that_a_message_has(folder: Path) -> None:
    rows = rows_of(run("cat", folder, "--json").output)
    with MessageStore.open(folder) as store:
        times = [m.timestamp_ms for name in (("bytes", 7), ("orders", 0), ("orders", 1)) for m in store.read(*name)]
    assert [row.pop("timestamp_ms") for row in rows] == times
    assert rows[0] == {
        "topic": "bytes", "queue_id": 7, "offset": 0, "deliver_at_ms": 1_000_000_000_123, "key_base64": "a/4=",
        "properties": {"a": "b c"}, "data_base64": "/wobWzMxbQ==",
    }  # fmt: skip
    assert rows[1] == {"topic": "orders", "queue_id": 0, "offset": 0, "data": "order 0"}
    assert len(rows) == 7


def test_every_output_takes_every_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("日本", 0, "é\u2028\x9b".encode(), properties={"half": "\ud800"})
    code = (  # one process for all commands: it starts for longer than they run
        "import sys; from stratalog.console import main\n"
        "_, folder, *commands = sys.argv\n"
        "for command in commands:\n"
        "    name, *options = command.split(); sys.argv = ['stratalog', name, folder, *options]\n"
        "    sys.stdout.reconfigure(errors='strict')\n"  # as it is when a process starts
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, (command, end.code)\n"
        "    print(chr(10) + 'END', flush=True)\n"
    )
    for encoding, commands in (("utf-8", ["cat --json"]), ("ascii", ["cat --json", "cat", "topics", "inspect"])):
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        command = [sys.executable, "-c", code, str(tmp_path), *commands]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stderr) == (0, b""), encoding
        written = done.stdout.split(b"\nEND\n")
        assert len(written) == len(commands) + 1 and all(written[:-1]), encoding
        row = json.loads(written[0])
        assert (row["topic"], row["data"]) == ("日本", "é\u2028\x9b")
        assert row["properties"] == {"half": "\ud800"}


def test_output_that_was_closed_is_no_damage(folder: Path) -> None:
    for command in ("cat", "verify"):
        shell = 'exec "$@" >&-'
        done = subprocess.run(
            ["sh", "-c", shell, "sh", *process(command, folder)],
            cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b""), command


@pytest.mark.parametrize("topic", ["", "a\nb", "x" * 256, "\udcff"])
def test_topic_that_cannot_be_is_a_wrong_use(folder: Path, topic: str) -> None:
    shown = run("cat", folder, topic)
    assert shown.exit_code == 2, shown.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["orders"], ["0:0", "0:1", "0:2", "1:0", "1:1", "1:2"]),
        (["orders", 1], ["1:0", "1:1", "1:2"]),
        (["orders", "--from", 2], ["0:2", "1:2"]),
        (["orders", 1, "--from", 1, "--count", 1], ["1:1"]),
        (["orders", "--count", 4], ["0:0", "0:1", "0:2", "1:0"]),
        (["orders", "--count", 0], []),
        (["orders", "--from", 99], []),
        (["orders", "--since", 0], ["0:0", "0:1", "0:2", "1:0", "1:1", "1:2"]),
        (["orders", "--since", "9999-01-01"], []),
        (["orders", "--since", "1970-01-02T00:00:00+02:00", "--count", 1], ["0:0"]),
    ],
    ids=str,
)
def test_what_is_asked_for_is_written(folder: Path, arguments: list[object], expected: list[str]) -> None:
    shown = run("cat", folder, *arguments, "--json")
    assert shown.exit_code == 0, shown.output
    assert [f"{row['queue_id']}:{row['offset']}" for row in rows_of(shown.output)] == expected


def test_since_is_the_time_of_the_messages(tmp_path: Path) -> None:
    now = [1_700_000_000_000]
    with MessageStore.open(tmp_path, clock=WallClock(lambda: now[0])) as store:
        store.append("t", 0, b"early")
        now[0] += 20
        store.append("t", 0, b"late")
        late_ms = store.read("t", 0)[1].timestamp_ms
    for since in (late_ms, f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(late_ms // 1000))}.{late_ms % 1000:03}"):
        assert [row["data"] for row in rows_of(run("cat", tmp_path, "--since", since, "--json").output)] == ["late"]


def test_more_messages_than_are_read_at_once_and_removed_ones(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=300 << 10)) as store:
        while store.queue_bounds("t", 0)[0] < 2000:
            store.append_batch([("t", 0, b"%d" % number + bytes(100)) for number in range(500)])
    with look_into_folder(tmp_path) as store:
        first, end = store.queue_bounds("t", 0)
    rows = rows_of(run("cat", tmp_path, "t", 0, "--json", "--from", first - 100).output)
    assert [row["offset"] for row in rows] == list(range(first, end))


def test_topics_are_told_with_their_figures(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = run("topics", folder, "--json", out)
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert lines[0].startswith("bytes: 1 queue, 1 message, 20") and " to 20" in lines[0]
    assert lines[1].startswith("orders: 2 queues, 6 messages, 20")
    rows = json.loads(out.read_text())["topics"]
    assert [(row["topic"], row["queues"], row["messages"]) for row in rows] == [("bytes", 1, 1), ("orders", 2, 6)]
    assert all(row["first_ms"] <= row["last_ms"] for row in rows)
    assert json.loads(run("topics", folder, "--json", "-").output) == {"topics": rows}


def test_empty_store_has_nothing_to_tell(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    assert run("cat", tmp_path) == run("topics", tmp_path) == (0, "")


@pytest.mark.parametrize("command", ["cat", "topics", "inspect", "verify"])
@pytest.mark.parametrize("crashed", [False, True])
def test_commands_change_nothing(folder: Path, tmp_path: Path, command: str, crashed: bool) -> None:
    if crashed:
        with MessageStore.open(folder) as store:
            store.append("orders", 0, b"not closed")
            crash_copy(folder, tmp_path / "copy")
    home = tmp_path / "copy" if crashed else folder
    before = {name: data for name, data in take_snapshot(home).items() if name != "LOCK"}
    shown = run(command, home)
    assert shown.exit_code == 0, shown.output
    assert {name: data for name, data in take_snapshot(home).items() if name != "LOCK"} == before
    if crashed and command in ("cat", "inspect"):
        assert ("not closed" if command == "cat" else "the next opening recovers it") in shown.output


EXPECTED_BESIDE = {
    "cat": "orders/1 3 ", "topics": "orders: 2 queues, 7 messages", "inspect": "has it open",
    "verify": "what is sealed and what is durable was checked",
}  # fmt: skip


@pytest.mark.parametrize("command", EXPECTED_BESIDE)
def test_command_works_beside_a_program(folder: Path, command: str) -> None:
    with MessageStore.open(folder) as store:
        store.append("orders", 1, b"durable a moment ago")
        shown = run(command, folder)
        assert store.append("orders", 1, b"the program goes on") == 4
    assert shown.exit_code == 0, shown.output
    assert EXPECTED_BESIDE[command] in shown.output


@pytest.mark.parametrize("queue", [[], ["orders", 1]], ids=str)
def test_cat_follows_a_program(folder: Path, queue: list[object]) -> None:
    """Old messages, then each that comes, also of a queue that was not there; and what was asked for ends it."""
    with MessageStore.open(folder) as store:
        old = len(run("cat", folder, *queue).output.splitlines())
        command = process("cat", folder, *queue, "-f", "--json", "--count", old + 20)
        shown = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert shown.stdout is not None
        lines = [shown.stdout.readline() for _ in range(old)]
        for number in range(20):
            store.append("orders", 1 if len(queue) > 1 else 90 + number % 3, b"new %d" % number)
        lines += shown.stdout.read().splitlines()
        assert shown.wait(PATIENCE_S) == 0
    assert sorted(json.loads(line)["data"] for line in lines[old:]) == sorted(f"new {number}" for number in range(20))


def test_cat_that_follows_nothing_ends_by_an_interrupt(folder: Path) -> None:
    command = (  # whatever started us may have it ignore interrupts
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"sys.argv = ['stratalog', 'cat', {str(folder)!r}, '-f']; from stratalog.console import main; main()"
    )
    shown = subprocess.Popen([sys.executable, "-c", command], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert shown.stdout is not None
    for _ in range(7):
        assert shown.stdout.readline()
    shown.send_signal(signal.SIGINT)
    assert shown.wait(PATIENCE_S) == 130


def test_topic_or_queue_that_is_not_there_is_said_with_4(folder: Path) -> None:
    for arguments, what in ((["nope"], "topic 'nope'"), (["orders", 5], "queue 5 of topic 'orders'")):
        shown = run("cat", folder, *arguments)
        assert (shown.exit_code, what in shown.output) == (4, True)


@pytest.mark.parametrize(
    "arguments", [["--since", "soon"], ["--from", -1], ["--count", -1], ["orders", "x"], ["orders", 1, 2]], ids=str
)
def test_wrong_use_is_2(folder: Path, arguments: list[object]) -> None:
    assert run("cat", folder, *arguments).exit_code == 2


def damaged_store(home: Path) -> int:
    """A store of several segments with a flipped bit in the 31st message; its offset."""
    with MessageStore.open(home, tiny()) as store:
        for number in range(100):
            store.append("t", 0, b"%d;" % number + bytes(3000))
        place = place_of(store, ("t", 0), 30)
    flip_bit(*place)
    return 30


def test_cat_writes_what_is_in_front_of_damage_and_ends_with_1(tmp_path: Path) -> None:
    lost = damaged_store(tmp_path)
    done = subprocess.run(
        process("cat", tmp_path, "--json"), capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert [row["offset"] for row in rows_of(done.stdout)] == list(range(lost))
    assert "do not match their checksum" in done.stderr and "Traceback" not in done.stderr
    shown = run("cat", tmp_path, "--from", lost + 1, "--json")
    assert (shown.exit_code, len(rows_of(shown.output))) == (0, 100 - lost - 1)


@pytest.mark.parametrize("topic", [[], ["nowhere"]])
def test_cat_of_a_store_that_an_opening_refuses_writes_what_is_in_front_of_the_damage(
    tmp_path: Path, topic: list[str]
) -> None:
    with MessageStore.open(tmp_path) as store:
        for number in range(50):
            store.append("t", 0, b"%d;" % number + bytes(3_000))
    place = full_frames(segment_path(tmp_path, 1))[30].payload_start + 100
    flip_bit(segment_path(tmp_path, 1), place)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(tmp_path)
    command = process("cat", tmp_path, *topic, "--json")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and "do not match their checksum" in done.stderr
    assert [row["offset"] for row in rows_of(done.stdout)] == ([] if topic == ["nowhere"] else list(range(30)))
    assert run("topics", tmp_path).exit_code == 1


def test_verdict_is_the_first_line_of_inspect(folder: Path, tmp_path: Path) -> None:
    assert run("inspect", folder).output.startswith("healthy: 7 messages in 3 queues; ")
    damaged_store(tmp_path / "damaged")
    path = segment_path(tmp_path / "damaged", 1)
    flip_bit(path, len(path.read_bytes().rstrip(b"\0")) - 1)  # of its footer
    shown = run("inspect", tmp_path / "damaged")
    assert shown.exit_code == 1
    assert shown.output.startswith("damaged: the footer is damaged in ")
    assert "it opens" in shown.output.splitlines()[0]
    damaged_store(tmp_path / "refused")
    segment_path(tmp_path / "refused", 2).unlink()
    shown = run("inspect", tmp_path / "refused")
    assert shown.exit_code == 1
    assert shown.output.startswith("needs repair: ") and "opening refuses it" in shown.output.splitlines()[0]


def test_every_exit_code_has_one_meaning_and_help_tells_it() -> None:
    assert len(set(MEANINGS.values())) == len(MEANINGS)
    told = " ".join(run("--help").output.split())
    for code, meaning in MEANINGS.items():
        assert f"{code} {meaning}" in told
    page = (ROOT / "docs" / "reference" / "console.md").read_text()
    for code in MEANINGS:
        assert f"| {code} |" in page


@pytest.mark.parametrize("command", ["cat", "verify"])
def test_reader_that_goes_away_ends_it_quietly(folder: Path, command: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        process(command, folder), stdout=write_end, stderr=subprocess.PIPE, cwd=ROOT, timeout=PATIENCE_S, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_head_ends_a_long_cat_quietly(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for _ in range(20):
            store.append_batch([("t", 0, bytes(b"x" * 100))] * 1000)
    with subprocess.Popen(
        process("cat", tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline().startswith(b"t/0 0 ")
        child.stdout.close()
        assert (child.wait(PATIENCE_S), child.stderr.read()) == (141, b"")
    MessageStore.open(tmp_path).close()  # its lock is gone


def test_interrupt_ends_it_with_a_word_and_130(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for _ in range(20):
            store.append_batch([("t", 0, bytes(b"x" * 100))] * 1000)
    command = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"sys.argv[1:] = ['cat', {str(tmp_path)!r}]; from stratalog.console import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.send_signal(signal.SIGINT)  # it waits for us to read on
        child.stdout.read()
        assert child.wait(PATIENCE_S) == 130
        assert child.stderr.read().decode().splitlines() == ["interrupted"]


def test_what_is_trimmed_or_deleted_is_shown_by_no_command(folder: Path) -> None:
    with MessageStore.open(folder) as store:
        store.trim("orders", 0, 2)
        store.delete_topic("bytes")
    shown = [(topic, queue, offset) for topic, queue, offset, _ in queues_of(run("cat", folder).output)]
    assert shown == [("orders", "0", "2"), ("orders", "1", "0"), ("orders", "1", "1"), ("orders", "1", "2")]
    assert run("cat", folder, "bytes").exit_code == 4
    assert run("topics", folder).output.startswith("orders: 2 queues, 4 messages")
    figures = json.loads(run("inspect", folder, "--json", "-").output)
    assert figures["topics"] == ["orders"]
    assert [(row["queue"], row["first"], row["next_offset"]) for row in figures["queues"]] == [(0, 2, 3), (1, 0, 3)]
    assert run("verify", folder).exit_code == 0
