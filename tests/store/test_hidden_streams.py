"""Hidden streams: messages like others for the log, and nowhere to be seen for users."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.store import (
    InvalidTopic,
    MessageStore,
    StoreClosed,
    StoreReader,
    inspect_folder,
    look_into_folder,
    verify_folder,
)
from stratalog.store.format.hidden import (
    MAX_HIDDEN_TOPIC_BYTES,
    MAX_KIND_BYTES,
    HiddenTopic,
    hidden_parts,
    hidden_topic,
    is_hidden,
)
from stratalog.store.format.layout import MAX_TOPIC_BYTES
from stratalog.store.format.records import RECORDS_TOPIC
from stratalog.store.log.streams import Stream

from .helpers import crash_copy, scanned, tiny, until

LONGEST = hidden_topic("k" * MAX_KIND_BYTES, "t" * MAX_TOPIC_BYTES, "n" * MAX_TOPIC_BYTES)
NAMES = [hidden_topic("kind", "orders"), hidden_topic("kind", "orders", "billing"), LONGEST]


def fill(store: MessageStore, count: int = 20, size: int = 10) -> None:
    """Messages of users between those of hidden streams."""
    for number in range(count):
        store.append("orders", number % 3, b"%06d" % number + bytes(size))
        for name in NAMES:
            store._shared.hidden.append(store._shared.hidden.find_or_make(name), [b"%06d" % number])


def hidden(store: StoreReader, topic: str) -> Stream:
    found = store._shared.hidden.find(topic)
    assert found is not None
    return found


def datas(store: StoreReader, topic: str) -> list[bytes]:
    stream = hidden(store, topic)
    first, _ = store._reader.bounds(stream)
    return [message.data for message in store._reader.read(stream, first, 10_000, 1 << 20)]


def check_unseen(store: StoreReader) -> None:
    assert store.topics() == ["orders"]
    assert store.queues("orders") == [0, 1, 2]
    assert {name for name, *_ in scanned(store)} == {"orders"}
    assert all(len(batch) for batch in store.scan())
    for name in NAMES:
        with pytest.raises(InvalidTopic):
            store.read(name, 0)


def test_parts_of_a_hidden_topic_are_those_that_it_was_made_of() -> None:
    assert hidden_parts(NAMES[1]) == HiddenTopic("kind", ("orders", "billing"))
    assert hidden_parts(RECORDS_TOPIC) == HiddenTopic("records", ())
    assert hidden_parts("orders") is None
    assert is_hidden(RECORDS_TOPIC)
    assert not is_hidden("orders")
    assert len(LONGEST.encode()) == MAX_HIDDEN_TOPIC_BYTES


def test_users_see_nothing_of_hidden_streams(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        fill(store)
        check_unseen(store)
        assert store.stats()["streams"] == 3
        assert [store.append("orders", None, b"chosen") for _ in range(6)], "chosen among the users' queues"
        assert store.queues("orders") == [0, 1, 2]


def test_no_user_can_append_to_a_hidden_stream(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        fill(store)
        for name in NAMES:
            for call in (store.append, store.submit):
                with pytest.raises(InvalidTopic):
                    call(name, 0, b"x")
            with pytest.raises(InvalidTopic):
                store.delete_topic(name)


@pytest.mark.parametrize("crashes", [False, True])
def test_hidden_streams_are_there_after_an_opening(tmp_path: Path, crashes: bool) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        fill(store, 200, 2000)  # some segments
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    folder = tmp_path / ("crashed" if crashes else "s")
    assert verify_folder(folder).ok
    with MessageStore.open(folder, tiny()) as store:
        check_unseen(store)
        for name in NAMES:
            assert datas(store, name) == [b"%06d" % number for number in range(200)]
            assert store._shared.hidden.append(hidden(store, name), [b"a", b"b"]).tolist() == [200, 201]
        assert [stream.topic for stream in store._shared.hidden.of_kind("kind")] == sorted(NAMES[:2])


def test_readers_in_other_processes_and_tools_see_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        fill(store, 60, 4000)
        with MessageStore.open(tmp_path / "s", read_only=True) as reader:
            check_unseen(reader)
            assert datas(reader, NAMES[0]) == datas(store, NAMES[0])
        assert inspect_folder(tmp_path / "s")["topics"] == ["orders"]
    found = inspect_folder(tmp_path / "s")
    assert (found["topics"], found["streams"]) == (["orders"], 3)
    with look_into_folder(tmp_path / "s") as looked:
        check_unseen(looked)


def test_retention_keeps_a_segment_that_a_hidden_stream_needs(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        fill(store, 100, 4000)
        until(lambda: len(store._lanes[0].view.sealed) > 2)
        for queue in range(3):
            store.trim("orders", queue, store.queue_bounds("orders", queue)[1])
        store._upkeep._try(store._upkeep.removal.retire)
        assert [datas(store, name)[0] for name in NAMES] == [b"000000"] * 3


def test_large_batches_are_cut_to_frames(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        stream = store._shared.hidden.find_or_make(NAMES[0])
        offsets = store._shared.hidden.append(stream, [bytes(30_000)] * 7)
        assert offsets.tolist() == list(range(7))
        assert store._shared.hidden.append(stream, []).tolist() == np.empty(0).tolist()
        assert store._shared.hidden.find(NAMES[1]) is None
        store.close()
        with pytest.raises(StoreClosed):
            store._shared.hidden.append(stream, [b"x"])
        with pytest.raises(StoreClosed):
            store._shared.hidden.find_or_make(NAMES[1])


@pytest.mark.parametrize(
    ("kind", "names"),
    [("", ()), ("k" * (MAX_KIND_BYTES + 1), ()), ("ü", ()), ("k", ("a", "b", "c")), ("k", ("a\x01b",)), ("\x01", ())],
)
def test_what_could_not_be_taken_apart_again_is_no_hidden_topic(kind: str, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="hidden topic"):
        hidden_topic(kind, *names)
