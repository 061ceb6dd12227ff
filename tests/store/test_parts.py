"""The parts of a store: they do the work of its calls, and keep no store alive that its program lets go of."""

from __future__ import annotations

import gc
import inspect
import weakref
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import Message, MessageStore
from stratalog.store.api.append_calls import AppendCalls
from stratalog.store.api.appender import Appender
from stratalog.store.api.fetcher import Fetcher
from stratalog.store.api.identified import IdentifiedAppender
from stratalog.store.api.read_calls import ReadCalls

from .disks import GatedDisk
from .helpers import start, tiny, until

CALLS = [
    (calls, part, name)
    for calls, part in ((AppendCalls, Appender), (ReadCalls, Fetcher))
    for name in vars(calls)
    if not name.startswith("_")
]


@pytest.mark.parametrize(("calls", "part", "name"), CALLS, ids=lambda given: getattr(given, "__name__", given))
def test_a_call_has_a_text_and_the_arguments_of_its_part_in_order(calls: type, part: type, name: str) -> None:
    """They are passed on by position: an order of its own would mix them up."""
    assert len(inspect.getdoc(getattr(MessageStore, name)) or "") > 100
    asked, given = (list(inspect.signature(getattr(owner, name)).parameters) for owner in (MessageStore, part))
    if asked[-1].startswith("message_id"):  # with an id, another part does it
        assert asked == list(inspect.signature(getattr(IdentifiedAppender, name)).parameters)
        del asked[-1]
    assert asked == given


@pytest.mark.parametrize("part", ["_appender", "_fetcher", "_shared", "_waiting", "_running", "_lanes", "_queues"])
def test_a_part_does_not_keep_its_store_alive(tmp_path: Path, part: str) -> None:
    store: MessageStore | None = MessageStore.open(tmp_path, tiny())
    assert store is not None
    store.append("t", 0, b"x")
    assert store.get_range("t", 0, 0, 1) == {0: b"x"}
    held: Any = getattr(store, part)
    gc.disable()  # nor is there a circle
    try:
        known = weakref.ref(store)
        with pytest.warns(ResourceWarning, match="was never closed"):
            store = None
        assert known() is None
    finally:
        gc.enable()
    with MessageStore.open(tmp_path) as again:
        assert again.queue_bounds("t", 0) == (0, 1)
    assert held is not None


def test_a_scan_keeps_its_store_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for number in range(3):
            store.append("t", 0, b"%d" % number)
    batches = MessageStore.open(tmp_path, tiny()).scan()
    gc.collect()
    with pytest.warns(ResourceWarning, match="was never closed"):  # at the end of the scan
        assert [bytes(data) for batch in batches for data in batch.payloads()] == [b"0", b"1", b"2"]


def test_an_append_under_way_keeps_its_store_open(tmp_path: Path) -> None:
    disk = GatedDisk()
    store: MessageStore | None = MessageStore.open(tmp_path, tiny(), disk=disk)
    assert store is not None
    store.append("t", 0, b"x")
    disk.gate.clear()
    queues, known, offsets = store._queues, weakref.ref(store), list[int]()
    appending = start(append_to([store], offsets))
    store = None
    until(lambda: queues[0].used_bytes > 0)
    assert known() is not None
    with pytest.warns(ResourceWarning, match="was never closed"):
        disk.gate.set()
        appending.join()
    assert offsets == [1]


def append_to(stores: list[MessageStore], offsets: list[int]) -> Any:
    """What a thread does that alone holds a store: `stores` is empty when it appends."""
    return lambda: offsets.append(stores.pop().append("t", 0, b"y"))


def test_a_reader_that_waits_keeps_its_store_open(tmp_path: Path) -> None:
    store: MessageStore | None = MessageStore.open(tmp_path, tiny())
    assert store is not None
    waiting, appender, known = store._waiting, store._appender, weakref.ref(store)
    found: list[Message] = []
    stores = [store]
    reading = start(lambda: found.extend(stores.pop().read("t", 0, 0, wait_ms=60_000)))
    store = None
    until(lambda: len(waiting) == 1)
    assert known() is not None
    with pytest.warns(ResourceWarning, match="was never closed"):
        assert appender.append("t", 0, b"x", None, None, None, None) == 0
        reading.join()
    assert [message.data for message in found] == [b"x"]


def test_a_subclass_may_have_a_call_of_its_own(tmp_path: Path) -> None:
    class Counting(MessageStore):
        appends = 0

        def append(self, *given: Any, **named: Any) -> int:
            self.appends += 1
            return super().append(*given, **named)

    with Counting.open(tmp_path, tiny()) as store:
        assert isinstance(store, Counting)
        assert [store.append("t", 0, b"x"), store.append("t", 0, data=b"y", key=b"k")] == [0, 1]
        assert store.appends == 2
