"""`stratalog export` and `import`: what goes out comes in again, whole or not at all."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import Message, MessageStore, StoreReader

from ..seeds import draw_seed
from ..store.helpers import PATIENCE_S, tiny
from .command import finish, process, run

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FORMATS = ["json", "parquet"]
TEXTS = ["", "a", "ü", "\u202e", "\x00", "line\nbreak", "'\"\\", "😀"]
LATEST_MS = (1 << 62) - 1


def fill(home: Path, count: int = 300) -> None:
    """Messages at random: bytes and text, with and without each field."""
    chance = random.Random(draw_seed())
    with MessageStore.open(home, tiny(lanes=2)) as store:
        for _ in range(count):
            given: dict[str, Any] = {}
            if chance.random() < 0.5:
                given["key"] = chance.choice([b"", b"k", b"\xff\x00", "ü".encode()])
            if chance.random() < 0.5:
                given["properties"] = {chance.choice(TEXTS): chance.choice(TEXTS) for _ in range(chance.randrange(3))}
            if chance.random() < 0.3:
                given["deliver_at_ms"] = chance.choice([0, 1, 1_700_000_000_123, LATEST_MS, 253_402_300_800_000])
            data = chance.choice([b"", b"text", chance.randbytes(chance.randrange(3_000)), "ü".encode()])
            store.append(chance.choice(["orders", "ü", "a b"]), chance.randrange(3), data, **given)


def kept(home: Path) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    """What an import keeps of each queue's messages."""

    def of(message: Message) -> tuple[object, ...]:
        return bytes(message.data), message.key, message.properties, message.deliver_at_ms

    with StoreReader.open(home) as store:
        names = [(topic, queue) for topic in store.topics() for queue in store.queues(topic)]
        return {name: [of(one) for one in store.read(*name, max_messages=10_000, max_bytes=1 << 30)] for name in names}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    fill(tmp_path / "full")
    return tmp_path / "full"


@pytest.mark.parametrize("format", FORMATS)
def test_an_import_of_an_export_has_the_same_messages(full: Path, tmp_path: Path, format: str) -> None:
    file = tmp_path / f"all.{format}"
    shown = run("export", full, "--to", file, "--format", format)
    assert shown.output == f"300 messages in {file}\n"
    shown = run("import", tmp_path / "copy", file)
    assert shown.output.splitlines()[-1] == "300 messages imported"
    assert kept(tmp_path / "copy") == kept(full)


def test_json_lines_go_through_pipes_and_are_those_of_cat(full: Path, tmp_path: Path) -> None:
    code, exported, _ = finish(process("export", full))
    assert code == 0
    assert exported.decode() == run("cat", full, "--json").output == run("export", full, "--to", "-").output
    code, output, errors = finish(process("import", tmp_path / "copy", "-", "--json"), exported)
    assert (code, json.loads(output)) == (0, {"messages": 300, "is_new": True, "is_attached": True}), errors
    assert kept(tmp_path / "copy") == kept(full)


@pytest.mark.parametrize("format", FORMATS)
def test_an_import_works_beside_a_program_that_has_the_store_open(full: Path, tmp_path: Path, format: str) -> None:
    file = tmp_path / f"all.{format}"
    run("export", full, "orders", "--to", file)
    with MessageStore.open(tmp_path / "open") as store:
        store.append("orders", 0, b"before")
        code, output, errors = finish(process("import", tmp_path / "open", file))
        assert (code, errors) == (0, b"")
        assert output.endswith(b"messages imported\n")
        assert store.read("orders", 0)[0].data == b"before"
        assert store.queue_bounds("orders", 0)[1] == 1 + len(kept(full)["orders", 0])


def test_a_part_is_exported_by_topic_queue_and_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        for queue in (0, 1):
            store.append("t", queue, b"x")
        store.append("u", 0, b"x")
    rows = run("export", tmp_path / "s", "t").rows
    assert [(row["topic"], row["queue_id"]) for row in rows] == [("t", 0), ("t", 1)]
    assert [row["queue_id"] for row in run("export", tmp_path / "s", "t", 1).rows] == [1]
    assert run("export", tmp_path / "s", "--since", "+1h").rows == []
    assert run("export", tmp_path / "s", "--until", "-1h").rows == []
    assert len(run("export", tmp_path / "s", "--since", "-1h", "--until", "+1h").rows) == 3
    run("export", tmp_path / "s", "nope", code=4)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_with_a_field_that_messages_do_not_have_is_refused_and_nothing_is_imported(
    tmp_path: Path, format: str
) -> None:
    rows = [{"topic": "t", "queue_id": 0, "data": "x"}, {"topic": "t", "queue_id": 0, "data": "y", "extra": "1"}]
    file = tmp_path / f"rows.{format}"
    if format == "json":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows[::-1]), file)
    shown = run("import", tmp_path / "s", file, code=2)
    assert "'extra'" in shown.errors and str(file) in shown.errors and "nothing was imported" in shown.errors
    with StoreReader.open(tmp_path / "s") as store:
        assert store.topics() == []
    assert list((tmp_path / "s" / "incoming").iterdir()) == []


def test_one_wrong_file_of_two_leaves_the_store_as_it_was(full: Path, tmp_path: Path) -> None:
    before = kept(full)
    run("export", full, "--to", tmp_path / "good.json")
    (tmp_path / "bad.json").write_text('{"topic": "t"}\n')
    assert "line 1: it has no data" in run("import", full, tmp_path / "good.json", tmp_path / "bad.json", code=2).errors
    assert kept(full) == before


def test_a_transaction_is_imported_once(full: Path, tmp_path: Path) -> None:
    run("export", full, "--to", tmp_path / "all.json")
    for _ in range(2):
        shown = run("import", tmp_path / "copy", tmp_path / "all.json", "--transaction", "load-1")
    assert "'load-1' was imported before; nothing was changed" in shown.output
    assert kept(tmp_path / "copy") == kept(full)


def test_an_import_that_is_refused_at_its_end_leaves_nothing(full: Path, tmp_path: Path) -> None:
    before = kept(full)
    run("export", full, "--to", tmp_path / "all.json")
    run("import", full, tmp_path / "all.json", "--transaction", "x" * 300, code=2)
    assert kept(full) == before
    assert [path for path in (full / "incoming").iterdir() if path.is_dir()] == []


def test_a_full_disk_is_one_line_and_3(full: Path) -> None:
    commands = (["export", full], ["export", full, "--to", "/dev/full"], ["cat", full], ["tail", full, "-n", 300])
    with open("/dev/full", "wb") as full_file:
        children = [process(*command, output=full_file) for command in commands]
    for child in children:
        code, _, errors = finish(child)
        assert (code, len(errors.splitlines())) == (3, 1), errors


def test_a_reader_of_an_export_that_goes_away_ends_it_quietly(full: Path) -> None:
    children = [process("export", full, "--format", format) for format in FORMATS]
    for child in children:
        assert child.stdout is not None
        child.stdout.close()
    for child in children:
        assert child.stderr is not None
        assert (child.wait(PATIENCE_S), child.stderr.read()) == (141, b"")


def test_rows_without_a_topic_take_that_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"data": "x"}\n{"topic": "own", "data": "y"}\n')
    assert "give --topic" in run("import", tmp_path / "s", tmp_path / "rows.json", code=2).errors
    run("import", tmp_path / "s", tmp_path / "rows.json", "--topic", "t", "--queue", 4)
    assert set(kept(tmp_path / "s")) == {("t", 4), ("own", 4)}


@pytest.mark.parametrize("kind", ["timestamp[s]", "timestamp[ns]", "int64"])
def test_parquet_of_other_programs_has_other_types_of_times_and_texts(tmp_path: Path, kind: str) -> None:
    table = pa.table({
        "topic": ["t", "t"], "queue_id": pa.array([0, 0], pa.int64()), "data": ["text", "more"],
        "deliver_at": pa.array([7_000, None], pa.int64()).cast("timestamp[ms]").cast(kind),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    run("import", tmp_path / "s", tmp_path / "rows.parquet")
    assert kept(tmp_path / "s") == {("t", 0): [(b"text", None, None, 7_000), (b"more", None, None, None)]}


def test_parquet_without_pyarrow_is_one_line(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    shown = run("export", full, "--to", tmp_path / "x.parquet", code=2)
    assert shown.errors == "Parquet needs pyarrow: pip install pyarrow; or take --format json\n"
    assert list(tmp_path.iterdir()) == [full]


def test_half_a_surrogate_pair_goes_out_as_json_and_parquet_says_that_it_cannot(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", properties={"p": "\ud800"})
    shown = run("export", tmp_path / "s", "--to", tmp_path / "x.parquet", code=2)
    assert "take --format json" in shown.errors
    run("export", tmp_path / "s", "--to", tmp_path / "x.json")
    run("import", tmp_path / "copy", tmp_path / "x.json")
    assert kept(tmp_path / "copy") == kept(tmp_path / "s")


def test_a_file_that_is_there_or_cannot_be_written_is_refused(full: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert "is there already" in run("export", full, "--to", tmp_path / "mine", code=2).output
    assert (tmp_path / "mine").read_text() == "mine"
    code, _, errors = finish(process("export", full, "--to", tmp_path / "nowhere" / "x"))
    assert (code, len(errors.splitlines())) == (3, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_that_fails_leaves_no_file(tmp_path: Path, format: str) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        store.append_batch([("t", 0, b"message %d" % at) for at in range(5)])
    (path,) = [path for path in (tmp_path / "s").rglob("*.seg") if b"message 3" in path.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.find(b"message 3")] ^= 1
    path.write_bytes(data)
    run("export", tmp_path / "s", "--to", tmp_path / f"x.{format}", code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize(
    "arguments", [["--format", "xml"], ["--json"], ["--since", "soon"], ["--until", "soon"]], ids=str
)
def test_wrong_use_of_export_is_2(full: Path, arguments: list[str]) -> None:
    run("export", full, *arguments, code=2)


def test_what_is_no_file_of_messages_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"rubbish" * 100)
    (tmp_path / "x.json").write_bytes(b"\x00\x01")
    for name in ("x.parquet", "x.json"):
        shown = run("import", tmp_path / "s", tmp_path / name, code=2)
        assert len([line for line in shown.errors.splitlines() if "new store" not in line]) == 1
    assert "there is no file" in run("import", tmp_path / "s", tmp_path / "nowhere.json", code=2).output
