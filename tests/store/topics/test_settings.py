"""What a topic's settings promise: durable, all at once, there without a message, gone with the topic."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    StoreClosed,
    StoreCorrupt,
    StoreFull,
    StoreReader,
    StoreReadOnly,
    StoreUnusable,
    TopicSettings,
)
from stratalog.store.format.hidden import TOPIC_KIND, hidden_topic
from stratalog.store.format.topic_settings import pack_settings, unpack_settings
from stratalog.store.log.streams import Stream
from stratalog.store.topics import table
from stratalog.tools import compact_store, verify_folder

from ...seeds import draw_seed
from ..helpers import crash_copy, flip_bit, small, tiny, until

NAMES = ["orders", "ü/../x", "t" * 255]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as opened:
        yield opened


def test_a_topic_that_was_never_configured_has_the_defaults(store: MessageStore) -> None:
    assert store.topic_settings("orders") == TopicSettings()
    store.append("orders", 7, b"x")
    assert store.topic_settings("orders") == TopicSettings(queues=None)
    assert store.topics() == ["orders"]


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_there_at_once_and_after_an_opening(tmp_path: Path, name: str) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        assert store.configure_topic(name, queues=4) == TopicSettings(queues=4) == store.topic_settings(name)
        assert (store.topics(), store.queues(name)) == ([name], [0, 1, 2, 3])
        assert store.queue_bounds(name, 3) == (0, 0)
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        assert store.topic_settings(name) == TopicSettings(queues=4)
        assert (store.topics(), store.queues(name)) == ([name], [0, 1, 2, 3])
        assert store.read(name, 2) == []


def test_a_setting_that_is_left_out_takes_its_default(store: MessageStore) -> None:
    store.configure_topic("orders", queues=4)
    assert store.configure_topic("orders") == TopicSettings()
    assert store.topic_settings("orders").queues is None
    assert store.topics() == ["orders"]
    assert store.queues("orders") == []


def test_a_message_that_names_no_queue_goes_to_one_of_the_topics_queues(store: MessageStore) -> None:
    store.configure_topic("orders", queues=3)
    for _ in range(9):
        store.append("orders", data=b"x")
    assert [store.queue_bounds("orders", queue)[1] for queue in range(3)] == [3, 3, 3]
    for _ in range(5):
        store.append("orders", data=b"y", key=b"k")
    ends = sorted(store.queue_bounds("orders", queue)[1] for queue in range(3))
    assert ends == [3, 3, 8]  # the queue of a key is one
    store.configure_topic("orders", queues=4)
    assert {store.submit("orders", data=b"z").result() for _ in range(4)} and store.queue_bounds("orders", 3)[1] == 1


def test_a_queue_that_the_topic_does_not_have_is_refused_in_every_call(store: MessageStore) -> None:
    store.configure_topic("orders", queues=2)
    rows = [("orders", 1, b"a"), ("other", 5, b"b"), ("orders", 2, b"c")]
    with pytest.raises(InvalidTopic, match=r"has 2 queues, 0 to 1, and so no queue 2; give `configure_topic`") as told:
        store.append("orders", 2, b"x")
    assert told.value.row is None
    with pytest.raises(InvalidTopic, match="no queue 2"):
        store.submit("orders", 2, b"x")
    with pytest.raises(InvalidTopic, match="no queue 2"):
        store.append("orders", data=b"x", queues=[2])
    with pytest.raises(InvalidTopic, match=r"^row 2: the topic 'orders' has 2 queues") as told:
        store.append_batch(rows)
    assert told.value.row == 2
    with pytest.raises(InvalidTopic, match=r"^row 3: the topic 'orders' has 2 queues") as told:
        store.append_columns([("orders", 0), ("orders", 2)], np.array([0, 0, 0, 1]), np.ones(4, np.int64), b"abcd")
    assert told.value.row == 3

    async def append() -> None:
        with pytest.raises(InvalidTopic, match="no queue 2"):
            await store.append_async("orders", 2, b"x")

    asyncio.run(append())
    assert store.topics() == ["orders"]
    assert [store.queue_bounds("orders", queue) for queue in range(3)] == [(0, 0)] * 3
    assert store.append("orders", 1, b"x") == 0


def test_dead_letters_keep_their_queues(store: MessageStore) -> None:
    """Else each of them would be tried again for ever, and those of the other queues with them."""
    store.configure_topic("dead", queues=2)
    sub = store.subscribe("orders", "billing", max_attempts=1, dead_letter_topic="dead")
    store.append_batch([("orders", 1, b"x"), ("orders", 3, b"y")])
    for delivery in sub.receive():
        sub.nack(delivery)
    assert sub.receive() == []
    assert [store.queue_bounds("dead", queue) for queue in (1, 3)] == [(0, 1)] * 2
    assert sub.backlog().total == 0
    with pytest.raises(InvalidTopic, match="no queue 4"):
        store.append_columns([("dead", 4)], np.zeros(1, np.int64), np.ones(1, np.int64), b"z")


def test_queues_that_have_messages_stay(store: MessageStore) -> None:
    store.append("orders", 5, b"x")
    with pytest.raises(InvalidMessage, match="has or had messages in queue 5: queues is at least 6"):
        store.configure_topic("orders", queues=5)
    assert store.topic_settings("orders") == TopicSettings()
    store.configure_topic("orders", queues=6)
    store.trim("orders", 5, 1)
    with pytest.raises(InvalidMessage, match="queues is at least 6"):
        store.configure_topic("orders", queues=5)
    store.configure_topic("orders", queues=9)
    store.configure_topic("orders", queues=6)
    assert store.queues("orders") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("queues", [0, -1, 2**16 + 1, 2**31, True, 2.0, "4", [4], float("nan"), 10**400])
def test_a_wrong_number_of_queues_is_an_error_and_changes_nothing(store: MessageStore, queues: Any) -> None:
    with pytest.raises(InvalidMessage, match="queues is an int from 1 to 65536, or None, not "):
        store.configure_topic("orders", queues=queues)
    assert store.topics() == []


@pytest.mark.parametrize("topic", ["", "a\x01b", "t" * 256, 7, None, b"orders"])
def test_a_wrong_name_is_an_error(store: MessageStore, topic: Any) -> None:
    with pytest.raises(InvalidTopic):
        store.configure_topic(topic, queues=1)
    with pytest.raises(InvalidTopic):
        store.topic_settings(topic)


def test_numpys_integers_are_taken_and_the_most_queues_too(store: MessageStore) -> None:
    settings = store.configure_topic("orders", queues=np.int32(3))  # type: ignore[arg-type]  # as users pass them
    assert type(settings.queues) is int
    assert store.configure_topic("wide", queues=2**16).queues == 2**16
    assert store.append("wide", 2**16 - 1, b"x") == 0
    assert store.queues("wide") == [*range(2**16)]


def test_a_queue_of_a_deleted_topic_counts_as_used(tmp_path: Path) -> None:
    """Its next message finds the queue there, and would be taken although the topic does not have it."""
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.append("orders", 7, b"x")
        store.delete_topic("orders")
        with pytest.raises(InvalidMessage, match="had messages in queue 7: queues is at least 8"):
            store.configure_topic("orders", queues=4)
        assert store.topics() == []
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        with pytest.raises(InvalidMessage, match="had messages in queue 7: queues is at least 8"):
            store.configure_topic("orders", queues=4)
        store.configure_topic("orders", queues=8)
        with pytest.raises(InvalidTopic, match="no queue 8"):
            store.append("orders", 8, b"x")


def test_a_deleted_topic_loses_its_settings(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.configure_topic("orders", queues=2)
        assert store.delete_topic("orders") is True
        assert store.delete_topic("orders") is False
        assert (store.topics(), store.queues("orders"), store.topic_settings("orders")) == ([], [], TopicSettings())
        store.append("orders", 9, b"x")
        store.delete_topic("orders")
        store.configure_topic("orders", queues=20)
        assert store.topics() == ["orders"]
        store.delete_topic("orders")
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        assert (store.topics(), store.topic_settings("orders")) == ([], TopicSettings())


def test_readers_in_other_processes_see_each_change(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store, StoreReader.open(tmp_path / "s") as reader:
        assert reader.topic_settings("orders") == TopicSettings()
        for queues in (1, 7, None, 3):
            store.configure_topic("orders", queues=queues)
            assert reader.topic_settings("orders") == TopicSettings(queues=queues)
            assert reader.queues("orders") == [*range(queues or 0)]
            assert reader.topics() == ["orders"]
        store.delete_topic("orders")
        assert (reader.topics(), reader.topic_settings("orders")) == ([], TopicSettings())
        with pytest.raises(StoreReadOnly):
            reader.configure_topic("orders")  # type: ignore[attr-defined]  # it has no such call


def test_settings_outlive_retention_and_take_no_space_for_it(tmp_path: Path) -> None:
    config = tiny(retention_bytes=300_000)
    with MessageStore.open(tmp_path / "s", config) as store:
        for number in range(40):
            store.configure_topic(f"topic-{number}", queues=number + 1)
        for _ in range(30):
            store.append_batch([("filler", 0, bytes(30_000))] * 4)
        until(lambda: store.stats()["log"]["removed_segments"] >= 12)
        assert store.topic_settings("topic-7").queues == 8
    with MessageStore.open(tmp_path / "s", config) as store:
        assert [store.topic_settings(f"topic-{number}").queues for number in range(40)] == [*range(1, 41)]
    assert verify_folder(tmp_path / "s").ok


def test_topics_that_were_only_asked_for_are_not_remembered_for_ever(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_KNOWN", 10)
    store.configure_topic("orders", queues=3)
    for number in range(100):
        assert store.topic_settings(f"topic-{number}") == TopicSettings()
        assert store.topic_settings("orders").queues == 3
    assert len(store._fetcher.configured._known) <= 10


def test_a_change_that_was_interrupted_is_read_from_the_log(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record may become durable after a call that finds the settings of before."""
    hidden = store._shared.hidden

    def interrupted(stream: Stream, datas: list[bytes]) -> None:
        assert store.topic_settings("orders").queues == 3
        hidden.submit(stream, datas)
        raise KeyboardInterrupt

    store.configure_topic("orders", queues=3)
    with monkeypatch.context() as patched:
        patched.setattr(hidden, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.configure_topic("orders", queues=5)
    store.flush()
    assert store.topic_settings("orders").queues == 5
    assert store.append("orders", 4, b"x") == 0


def test_each_change_leaves_one_record(store: MessageStore) -> None:
    for queues in range(1, 30):
        store.configure_topic("orders", queues=queues)
    stream = store._shared.hidden.find(hidden_topic(TOPIC_KIND, "orders"))
    assert stream is not None
    assert stream.next_offset - stream.low == 1


def test_the_newest_record_counts_where_an_older_one_could_not_be_removed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise StoreFull("no space")

    store.configure_topic("orders", queues=1)
    with monkeypatch.context() as patched:
        patched.setattr(store._shared.hidden, "trim", full)
        store.configure_topic("orders", queues=2)
        with StoreReader.open(store.path) as reader:
            assert reader.topic_settings("orders").queues == 2
        with pytest.raises(StoreFull):
            store.delete_topic("orders")
    assert store.topic_settings("orders").queues == 2
    store.configure_topic("orders", queues=3)
    stream = store._shared.hidden.find(hidden_topic(TOPIC_KIND, "orders"))
    assert stream is not None
    assert stream.next_offset - stream.low == 1


@pytest.mark.parametrize("durability", ["force", "os"])
def test_settings_are_there_after_a_kill(tmp_path: Path, durability: str) -> None:
    with MessageStore.open(tmp_path / "s", tiny(durability=durability)) as store:
        store.configure_topic("orders", queues=2)
        store.configure_topic("orders", queues=5)
        crash_copy(tmp_path / "s", tmp_path / "killed")
    with MessageStore.open(tmp_path / "killed", tiny()) as store:
        assert store.topic_settings("orders").queues == 5


@pytest.mark.parametrize("sealed", [False, True])
def test_damaged_settings_are_an_error_with_their_place_and_a_repair_reports_them(tmp_path: Path, sealed: bool) -> None:
    """Nothing else is harmed by them: messages that name their queue are stored and read."""
    path = tmp_path / "s"
    with MessageStore.open(path, tiny()) as store:
        store.configure_topic("orders", queues=3)
        store.append("orders", 1, b"x")
        for _ in range(6 * sealed):
            store.append("filler", 0, bytes(30_000))
    file = next(one for one in sorted(path.glob("lane-*/*.seg")) if b'{"queues":3}' in one.read_bytes())
    at = file.read_bytes().index(b'{"queues":3}')
    flip_bit(file, at, 1)
    if sealed:  # a closed store trusts its sealed segments, and looks at what it reads
        with MessageStore.open(path, tiny()) as store:
            with pytest.raises(StoreCorrupt) as told:
                store.topic_settings("orders")
            assert told.value.file == str(file)
            assert abs(told.value.position - at) < 100
            with pytest.raises(StoreCorrupt):
                store.append("orders", data=b"x")
            assert [message.data for message in store.read("orders", 1)] == [b"x"]
            assert store.append("orders", 1, b"y") == 1
            assert store.configure_topic("orders", queues=4) == store.topic_settings("orders")
    else:
        assert not verify_folder(path).ok
    with MessageStore.open(path, tiny(), repair=True) as store:
        assert store.topic_settings("orders").queues == (4 if sealed else None)
        assert store.read("orders", 1)[0].data == b"x"


def test_a_compaction_keeps_settings(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with MessageStore.open(path, tiny()) as store:
        store.configure_topic("empty", queues=3)
        store.configure_topic("orders", queues=2)
        for _ in range(20):
            store.append("orders", 1, bytes(20_000))
        store.trim("orders", 1, 19)
    compact_store(path)
    with MessageStore.open(path, tiny()) as store:
        assert store.topic_settings("orders").queues == 2
        assert store.queues("empty") == [0, 1, 2]


def test_threads_that_change_topics_leave_what_the_last_one_said(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", small(lanes=2)) as store:
        said: dict[str, list[int]] = {f"t{number}": [] for number in range(3)}
        lock = threading.Lock()

        def change(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(30):
                topic, queues = dice.choice([*said]), dice.randint(1, 100)
                with lock:  # only so that the test knows the order
                    store.configure_topic(topic, queues=queues)
                    said[topic].append(queues)
                assert store.topic_settings(topic).queues is not None
                store.append(topic, data=b"x", queues=1)

        seed = draw_seed()
        workers = [threading.Thread(target=change, args=(seed + number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = {topic: store.topic_settings(topic).queues for topic in said}
        assert found == {topic: queues[-1] if queues else None for topic, queues in said.items()}
    with MessageStore.open(tmp_path / "s", small()) as store:
        assert {topic: store.topic_settings(topic).queues for topic in said} == found


def test_coroutines_configure_without_holding_their_loop(store: MessageStore) -> None:
    async def configure() -> list[TopicSettings]:
        return await asyncio.gather(*(store.configure_topic_async(f"t{n}", queues=n + 1) for n in range(5)))

    assert [one.queues for one in asyncio.run(configure())] == [1, 2, 3, 4, 5]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", tiny())
    store.close()
    with pytest.raises(StoreClosed):
        store.configure_topic("orders", queues=1)
    with pytest.raises(StoreClosed):
        store.topic_settings("orders")


@pytest.mark.parametrize("given", [["delay", "fifo", "delay"], ("fifo", "delay"), {"delay", "fifo"}])
def test_types_of_messages_are_kept_in_one_order_and_hold_no_append_back(tmp_path: Path, given: Any) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        settings = store.configure_topic("orders", types=given)
        assert settings.types == ("fifo", "delay")
        assert store.append("orders", 0, b"a normal one") == 0
        crash_copy(tmp_path / "s", tmp_path / "t")
    with MessageStore.open(tmp_path / "t", tiny()) as store:
        assert store.topic_settings("orders") == settings
        with StoreReader.open(tmp_path / "t") as reader:
            assert reader.topic_settings("orders") == settings
            assert store.configure_topic("orders").types is None
            assert reader.topic_settings("orders").types is None


@pytest.mark.parametrize(
    "types", [(), "normal", b"fifo", ["lite"], ["normal", None], 1, True, [["normal"]], ["NORMAL"]]
)
def test_wrong_types_of_messages_are_refused_and_change_nothing(store: MessageStore, types: Any) -> None:
    with pytest.raises(InvalidMessage, match="types is a list of one or more of 'normal', 'fifo', 'delay', 'trans"):
        store.configure_topic("orders", types=types)
    assert store.topics() == []


def test_a_record_has_these_bytes() -> None:
    assert TopicSettings(types=("normal", "fifo")).pack() == b'SLTS\x01\0\0\0{"types":["normal","fifo"]}'
    assert TopicSettings(queues=4).pack() == b'SLTS\x01\0\0\0{"queues":4}'
    assert unpack_settings(pack_settings({"queues": 4})) == {"queues": 4}
    assert TopicSettings.unpack(pack_settings({"queues": 4, "of a later version": [1]})) == TopicSettings(queues=4)


@pytest.mark.parametrize("data", [b"", b"SLTS", b"SLTS\x02\0\0\0{}", b"SLTS\x01\0\0\1{}", b"SLTS\x01\0\0\0[1]",
                                  b"SLTS\x01\0\0\0{", b"SLTX\x01\0\0\0{}", b'SLTS\x01\0\0\0{"queues":0}',
                                  b'SLTS\x01\0\0\0{"types":["of a later version"]}'])  # fmt: skip
def test_what_is_no_record_is_an_error_that_names_the_topic(store: MessageStore, data: bytes) -> None:
    hidden = store._shared.hidden
    hidden.append(hidden.find_or_make(hidden_topic(TOPIC_KIND, "orders")), [data])
    with pytest.raises(StoreUnusable, match="the settings of the topic 'orders' cannot be used here"):
        store.topic_settings("orders")
    store.configure_topic("orders", queues=1)
    assert store.topic_settings("orders").queues == 1
    until(lambda: store.topics() == ["orders"])


def test_a_queue_that_a_dead_letter_or_a_commit_has_made_takes_every_message_also_while_another_topic_is_full(
    store: MessageStore,
) -> None:
    store.configure_topic("orders", queues=2)
    store._appender.make([("orders", 5)])
    for looks in (False, True):
        store._appender.look_closely(looks)
        store.append("orders", 5, b"a")
        store.submit("orders", 5, b"b").result()
        store.append_batch([("orders", 5, b"c")])
        with pytest.raises(InvalidTopic):
            store.submit("orders", 4, b"x")
    store._appender.look_closely(False)
    assert store.queue_bounds("orders", 5) == (0, 6)
