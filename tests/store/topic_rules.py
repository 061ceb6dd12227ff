"""The topics of the whole-store model: which there are, their queues and settings, against dicts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from stratalog.store import MessageStore

from .helpers import Queue

UNUSED = "never used"
names = st.sampled_from([("a", 0), ("a", 1), ("ü", 2_147_483_647)])
ids = st.sampled_from(["i", "j", "k", "ü" * 100])


class TopicRules:
    """Rules for a machine that has `model` of the queues.

    Attributes:
        hidden: where the queue ended when its topic was deleted.
        configured: by topic, the setting `queues`.
        ids: by topic and message id, the offset of the first message with it.
    """

    store: MessageStore
    model: dict[Queue, list[tuple[Any, ...]]]
    first: dict[Queue, int]
    trimmed: dict[Queue, int]

    def __init__(self) -> None:
        super().__init__()
        self.hidden: dict[Queue, int] = {}
        self.configured: dict[str, int | None] = {}
        self.ids: dict[tuple[str, str], int] = {}  # by topic and id, the offset: the window is longer than a run

    def settle(self) -> None:
        """What was submitted is durable, and in the model."""
        raise NotImplementedError

    @rule(topic=st.sampled_from(["a", UNUSED]), more=st.none() | st.integers(0, 3))
    def configure(self, topic: str, more: int | None) -> None:
        self.settle()
        used = [queue for owner, queue in self.model if owner == topic]  # the other rules append to them
        queues = None if more is None else max(used, default=0) + 1 + more
        self.configured[topic] = self.store.configure_topic(topic, queues=queues).queues
        assert self.configured[topic] == queues

    @rule(data=st.binary(max_size=60), key=st.none() | st.binary(max_size=10))
    def append_to_some_queue(self, data: bytes, key: bytes | None) -> None:
        """Of the queues of "a", the model has two."""
        self.settle()
        mine = [name for name in self.model if name[0] == "a"]
        queues = self.configured.get("a")
        if queues is not None and queues <= len(mine):
            offset = self.store.append("a", data=data, key=key)
            grown = [name for name in mine if self.store.queue_bounds(*name)[1] > len(self.model[name])]
            assert [len(self.model[name]) for name in grown] == [offset]
            assert grown[0][1] < queues
            self.model[grown[0]].append((data, key, None, None))

    @rule(
        name=names,
        message_id=ids,
        data=st.binary(max_size=60),
        how=st.sampled_from(["append", "submit", "transaction"]),
    )
    def append_with_an_id(self, name: Queue, message_id: str, data: bytes, how: str) -> None:
        self.settle()
        if how == "append":
            offset = self.store.append(*name, data, message_id=message_id)
        elif how == "submit":
            ticket = self.store.submit(*name, data, message_id=message_id)
            offset = ticket.result()
            assert ticket.is_repeat == ((name[0], message_id) in self.ids)
        else:
            with self.store.transaction() as tx:
                tx.append(*name, data, message_id=message_id)
            (offset,) = tx.offsets.tolist()
        self.expect_id(name, message_id, data, offset)

    @rule(rows=st.lists(st.tuples(names, st.none() | ids, st.binary(max_size=20)), max_size=12))
    def append_batch_with_ids(self, rows: list[tuple[Queue, str | None, bytes]]) -> None:
        self.settle()
        given = [message_id for _, message_id, _ in rows]
        offsets = self.store.append_batch([(*name, data) for name, _, data in rows], message_ids=given)
        for (name, message_id, data), offset in zip(rows, offsets.tolist(), strict=True):
            self.expect_id(name, message_id, data, offset)

    def expect_id(self, name: Queue, message_id: str | None, data: bytes, offset: int) -> None:
        """An append with an id has its answer: the old offset, or the next one of its queue."""
        known = None if message_id is None else self.ids.get((name[0], message_id))
        assert offset == (len(self.model[name]) if known is None else known)
        if known is None:
            self.model[name].append((data, None, None, None))
            if message_id is not None:
                self.ids[name[0], message_id] = offset

    @rule()
    def list_names(self) -> None:
        self.settle()
        named = {name for name, rows in self.model.items() if len(rows) > self.hidden[name]}
        topics = sorted({topic for topic, _ in named} | self.configured.keys())
        named |= {(topic, queue) for topic, queues in self.configured.items() for queue in range(queues or 0)}
        assert self.store.topics() == topics
        for topic in topics:
            assert self.store.queues(topic) == sorted(queue for owner, queue in named if owner == topic)
            assert self.store.topic_settings(topic).queues == self.configured.get(topic)

    @rule(topic=st.sampled_from(["a", "b/../c", "ü", UNUSED]))
    def delete_topic(self, topic: str) -> None:
        self.settle()
        mine = [name for name in self.model if name[0] == topic]
        is_there = topic in self.configured or any(len(self.model[name]) > self.hidden[name] for name in mine)
        assert self.store.delete_topic(topic) == is_there
        self.configured.pop(topic, None)
        self.ids = {key: offset for key, offset in self.ids.items() if key[0] != topic}
        for name in mine:
            self.first[name] = self.hidden[name] = self.trimmed[name] = len(self.model[name])
