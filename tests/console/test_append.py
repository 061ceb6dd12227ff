"""`stratalog append`: what becomes a message, when, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stratalog.console.appended import READ_BYTES
from stratalog.console.rows import GROUP_ROWS
from stratalog.store import Message, MessageStore, StoreFull, StoreReader

from ..store.helpers import PATIENCE_S, until
from .command import ROOT, finish, process, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store") as store:
        store.append("old", 0, b"there")
    return tmp_path / "store"


def messages(folder: Path, topic: str = "t", queue_id: int = 0) -> list[Message]:
    """All messages of a queue."""
    with StoreReader.open(folder) as store:
        return store.read(topic, queue_id, max_messages=100_000, max_bytes=1 << 30)


def test_each_line_is_a_message_also_an_empty_one_and_one_without_an_end(folder: Path) -> None:
    shown = run("append", folder, "--topic", "t", "--queue", 3, "--key", "kü", given=b"one\n\n\xff\r\nlast")
    assert shown.output == "4 messages appended\n"
    found = messages(folder, "t", 3)
    assert [message.data for message in found] == [b"one", b"", b"\xff\r", b"last"]
    assert {message.key for message in found} == {"kü".encode()}
    assert {message.deliver_at_ms for message in found} == {None}


def test_nothing_is_appended_of_nothing(folder: Path) -> None:
    assert run("append", folder, "--topic", "t").output == "0 messages appended\n"


def test_a_delay_counts_from_the_time_of_the_append(folder: Path) -> None:
    run("append", folder, "--topic", "t", "--delay", "1h30m", given=b"late\n")
    (message,) = messages(folder)
    assert message.deliver_at_ms is not None
    assert 5_400_000 - 60_000 < message.deliver_at_ms - message.timestamp_ms <= 5_400_000


def test_json_lines_have_their_own_fields_and_options_are_for_those_without(folder: Path) -> None:
    lines = [
        {"data": "a"},
        {"topic": "u", "queue_id": 2, "data_base64": "/w==", "key_base64": "/g==", "properties": {"p": "ü", "a": ""}},
        {"topic": "u", "queue_id": 2, "data": "ü", "key": "own", "deliver_at_ms": 5, "offset": 17, "timestamp_ms": 1},
    ]
    given = "\n \n".join(map(json.dumps, lines)).encode()
    shown = run("append", folder, "--topic", "t", "--key", "all", "--format", "json", "--json", given=given)
    assert shown.rows == [{"messages": 3}]
    (first,) = messages(folder)
    assert (first.data, first.key, first.properties) == (b"a", b"all", None)
    one, two = messages(folder, "u", 2)
    assert (one.data, one.key, one.properties) == (b"\xff", b"\xfe", {"p": "ü", "a": ""})
    assert (two.data, two.key, two.deliver_at_ms, two.offset) == ("ü".encode(), b"own", 5, 1)
    assert two.timestamp_ms > 1


WRONG = [
    (b'{"topic": "t", "data": "x", "nonsense": 1}', "there is no field 'nonsense' of messages"),
    (b'{"data": "x"}', "it has no topic; give --topic"),
    (b'{"topic": "t"}', "it has no data"),
    (b'{"topic": 5, "data": "x"}', "a topic is a string, not 5"),
    (b'{"topic": "", "data": "x"}', "topic"),
    (b'{"topic": "t", "data": 5}', "data is a string"),
    (b'{"topic": "t", "data": "\\ud800"}', "data is a string"),
    (b'{"topic": "t", "data_base64": "###"}', "data is a string"),
    (b'{"topic": "t", "data": "x", "data_base64": "eA=="}', "give one of the two"),
    (b'{"topic": "t", "data": "x", "queue_id": true}', "a queue_id is a number from 0"),
    (b'{"topic": "t", "data": "x", "queue_id": 2147483648}', "a queue_id is a number from 0"),
    (b'{"topic": "t", "data": "x", "deliver_at_ms": 1e3}', "deliver_at_ms is a number of ms"),
    (b'{"topic": "t", "data": "x", "deliver_at_ms": -1}', "deliver_at_ms is a number of ms"),
    (b'{"topic": "t", "data": "x", "properties": {"a": 1}}', "properties are an object whose values are strings"),
    (b'["topic"]', "is no JSON object"),
    (b"x", "is no JSON"),
    (b"\xff", "is no JSON"),
    (b"[" * 100_000, "is no JSON"),
]


@pytest.mark.parametrize(("line", "sentence"), WRONG, ids=[str(line[:60]) for line, _ in WRONG])
def test_a_wrong_line_is_named_and_those_before_it_are_appended(folder: Path, line: bytes, sentence: str) -> None:
    good = b'{"topic": "t", "data": "good"}\n'
    shown = run("append", folder, "--format", "json", given=good + b"\n" + line + b"\n" + good, code=2)
    assert "line 3" in shown.errors and sentence in shown.errors and "(before it: 1 message appended)" in shown.errors
    assert len(shown.errors.splitlines()) == 1
    assert [message.data for message in messages(folder)] == [b"good"]


def test_a_message_that_is_too_large_is_named_by_its_line(folder: Path) -> None:
    shown = run("append", folder, "--topic", "t", given=b"x\n" + bytes(5 << 20) + b"\n", code=2)
    assert shown.errors.startswith("line 2: ")
    assert len(messages(folder)) == 1


def test_a_line_without_an_end_does_not_fill_the_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.console.appended.MOST_LINE_BYTES", 3 * READ_BYTES)
    shown = run("append", folder, "--topic", "t", given=bytes(5 * READ_BYTES), code=2)
    assert "a line is longer than 3 MiB" in shown.errors


def test_many_lines_share_forces(folder: Path) -> None:
    count = 100_000
    child = process("append", folder, "--topic", "t", "--json")
    code, output, errors = finish(child, b"".join(b"%d\n" % at for at in range(count)))
    assert (code, json.loads(output)) == (0, {"messages": count}), errors
    assert [int(message.data) for message in messages(folder)] == list(range(count))
    with MessageStore.open(folder) as store:
        assert max(len(batch) for batch in store.scan()) > 1_000


def test_a_line_is_durable_while_the_next_one_has_not_come(folder: Path) -> None:
    child = process("append", folder, "--topic", "t")
    assert child.stdin is not None
    try:
        for at in range(3):
            child.stdin.write(b"%d\n" % at)
            child.stdin.flush()
            until(lambda at=at: len(messages(folder)) == at + 1)  # type: ignore[misc]  # mypy has no type for a lambda's default
    finally:
        code, output, _ = finish(child)
    assert (code, output) == (0, b"3 messages appended\n")


def test_an_interrupt_keeps_what_was_appended_and_says_so(folder: Path) -> None:
    child = process("append", folder, "--topic", "t")
    assert child.stdin is not None
    child.stdin.write(b"one\n")
    child.stdin.flush()
    until(lambda: len(messages(folder)) == 1)
    child.send_signal(signal.SIGINT)
    code, _, errors = finish(child)
    assert (code, errors.decode().splitlines()) == (130, ["1 message appended", "interrupted"])


def test_a_new_folder_becomes_a_store_and_another_one_is_refused(tmp_path: Path) -> None:
    shown = run("append", tmp_path / "new", "--topic", "t", given=b"x\n")
    assert shown.errors == f"a new store was made in {tmp_path / 'new'}\n"
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("mine")
    assert "is no store" in run("append", tmp_path / "letters", "--topic", "t", given=b"x\n", code=4).errors
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["letter.txt"]


def test_a_store_without_space_says_how_far_it_came(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoSpace:
        def result(self) -> None:
            raise StoreFull("there is no space left")

    plain, tickets = MessageStore.submit_columns, list[Any]()

    def submit(store: MessageStore, *columns: Any) -> Any:
        tickets.append(NoSpace() if tickets else plain(store, *columns))
        return tickets[-1]

    monkeypatch.setattr(MessageStore, "submit_columns", submit)
    shown = run("append", folder, "--topic", "t", given=b"x\n" * (GROUP_ROWS + 5), code=None)
    assert shown.exit_code
    assert shown.errors.splitlines() == [
        "16,384 messages appended; of those after them some may be", "there is no space left"
    ]  # fmt: skip
    assert len(messages(folder)) == GROUP_ROWS


def test_a_closed_standard_input_is_an_empty_one(folder: Path) -> None:
    for command in (["append", str(folder), "--topic", "t"], ["import", str(folder), "-"]):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "stratalog.console", *command],
            capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "0", "")


def test_a_store_that_a_program_has_open_is_5(folder: Path) -> None:
    with MessageStore.open(folder):
        shown = run("append", folder, "--topic", "t", given=b"x\n", code=5)
    assert len(shown.errors.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--topic", "t", "--format", "xml"], ["--topic", "t", "--queue", -1], ["--topic", "t", "--delay", "soon"],
     ["--topic", "t", "--delay", "-5m"]],
    ids=str,
)  # fmt: skip
def test_wrong_use_is_2_before_anything_is_made(tmp_path: Path, arguments: list[object]) -> None:
    run("append", tmp_path / "new", *arguments, given=b"x\n", code=2)
    assert not (tmp_path / "new").exists()
