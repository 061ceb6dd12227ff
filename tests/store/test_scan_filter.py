"""A scan with a filter by properties gives the messages of a whole scan that pass it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stratalog.plans import ScanFilter
from stratalog.store import InvalidMessage, Message, MessageBatch, MessageStore
from tests.seeds import draw_seed

from .filters.grammar import Draw, draw_message
from .helpers import tiny


def messages_of(batches: Iterable[MessageBatch]) -> list[Message]:
    found = list(batches)
    assert all(map(len, found)), "no batch is empty"
    return [message for batch in found for message in batch.messages()]


def test_a_scan_gives_what_passes_a_filter_and_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(draw_seed())
    draw = Draw(chance)
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        for at in range(150):
            properties, key = draw_message(chance)
            topic = chance.choice("ab")
            store.append(topic, at % 3, b"%d" % at, key=key, properties=properties or None)
            if at % 10 == 0:
                store.append_batch([(topic, 0, b"plain")] * 3)
        whole = messages_of(store.scan())
        with MessageStore.open(store.path, read_only=True) as reader:
            for _ in range(40):
                text, answer = draw.whole(2)
                expected = [one for one in whole if answer((one.properties or {}, one.key)) is True]
                assert messages_of(store.scan(filter=text)) == expected, text
                assert messages_of(reader.scan(filter=text)) == expected, text
                of_topic = [one for one in expected if one.topic == "a"]
                assert messages_of(store.scan(ScanFilter(topics=("a",)), filter=text)) == of_topic


def test_a_scan_takes_a_mapping_as_a_subscription_does(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for at in range(30):
            store.append("t", 0, b"%d" % at, properties={"tag": "abc"[at % 3]})
        found = messages_of(store.scan(filter={"tag": {"a", "b"}}))
        assert [int(one.data) % 3 < 2 for one in found] == [True] * 20
        columns = [batch.columns() for batch in store.scan(filter={"tag": ["c"]})]
        assert sum(len(one.lengths) for one in columns) == 10


@pytest.mark.parametrize("bad", ["tag", {}, 1, b"tag = 'a'"])
def test_a_scan_refuses_a_filter_at_once(tmp_path: Path, bad: Any) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store, pytest.raises(InvalidMessage):
        store.scan(filter=bad)
