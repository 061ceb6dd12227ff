"""A change of a topic's queues beside an append that makes a new one: each knows of the other."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stratalog.store import InvalidMessage, InvalidTopic, MessageStore
from stratalog.store.topics.table import TopicTable
from tests.seeds import draw_seed

from ..helpers import PATIENCE_S, start, tiny


@pytest.mark.parametrize("how", ["append", "batch", "columns"])
def test_a_change_between_the_check_of_a_new_queue_and_its_making_is_not_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    real, asked = TopicTable.check_queue, list[int]()

    def check_and_change(table: TopicTable, topic: str, queue_id: int) -> None:
        real(table, topic, queue_id)
        asked.append(queue_id)
        if len(asked) == 1:
            store.configure_topic("t", queues=4)

    with MessageStore.open(tmp_path, tiny()) as store:
        calls: dict[str, Callable[[], object]] = {
            "append": lambda: store.append("t", 9, b"x"),
            "batch": lambda: store.append_batch([("t", 9, b"x")]),
            "columns": lambda: store.append_columns([("t", 9)], [0], [1], b"x"),
        }
        with monkeypatch.context() as patch:
            patch.setattr(TopicTable, "check_queue", check_and_change)
            with pytest.raises(InvalidTopic, match="has 4 queues"):
                calls[how]()
        assert asked == [9]
        assert store.queues("t") == [0, 1, 2, 3]
        store.configure_topic("t", queues=12)
        calls[how]()
        with pytest.raises(InvalidMessage, match="queue 9"):
            store.configure_topic("t", queues=4)


def test_threads_that_append_to_new_queues_beside_changes_agree_with_the_settings(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, tiny()) as store:
        for turn in range(60):
            topic, done, barrier = f"t{turn}", list[int](), threading.Barrier(3)

            def append(queue_id: int, topic: str, done: list[int], barrier: threading.Barrier) -> None:
                barrier.wait(PATIENCE_S)
                with suppress(InvalidTopic):
                    store.append(topic, queue_id, b"x")
                    done.append(queue_id)

            workers = [start(append, rng.randrange(1, 6), topic, done, barrier) for _ in range(2)]
            barrier.wait(PATIENCE_S)
            settings = None
            with suppress(InvalidMessage):
                settings = store.configure_topic(topic, queues=3)
            for worker in workers:
                worker.join()
            assert settings is None or all(queue_id < 3 for queue_id in done)
            assert settings is not None or max(done) >= 3
