"""The package as a program imports it: its names, what they are, and that a typed program over them is right."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
import typing
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog import (
    InvalidMessage,
    MessageStore,
    Stats,
    StoreClosed,
    StoreConfig,
    StoreReader,
    StoreReadOnly,
    Subscription,
    SubscriptionClosed,
)
from stratalog.store import ReaderStats

from . import face_program

MODULES = (
    "stratalog",
    "stratalog.bulk",
    "stratalog.plans",
    "stratalog.tools",
    "stratalog.telemetry",
    "stratalog.testing",
    "stratalog.endpoint",
)
MOST_NAMES = 40
PATIENCE_S = 60.0


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_the_names_that_it_lists_and_a_sentence_for_each(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert len(module.__all__) <= MOST_NAMES
    assert sorted(set(module.__all__), key=str.casefold) == sorted(module.__all__, key=str.casefold)
    for one in module.__all__:
        assert getattr(module, one) is not None


def test_no_name_is_in_two_modules() -> None:
    names = [one for name in MODULES for one in importlib.import_module(name).__all__]
    assert len(names) == len(set(names))


def test_the_package_knows_its_version_and_no_other_name() -> None:
    assert stratalog.__version__.count(".") >= 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stratalog.nothing  # type: ignore[attr-defined]


def test_a_reader_has_the_calls_that_read_and_says_why_it_lacks_the_others(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("t", 0, b"x")
        with StoreReader.open(tmp_path) as reader, MessageStore.open(tmp_path, read_only=True) as other:
            assert isinstance(reader, StoreReader)
            assert type(reader) is type(other)
            assert not isinstance(reader, MessageStore)
            assert isinstance(store, StoreReader)
            assert [message.data for message in reader.read("t", 0)] == [b"x"]
            unknown: Any = reader
            for name in ("append", "submit_columns", "subscribe", "trim", "attach_pending", "flush_async"):
                assert hasattr(store, name)
                assert not hasattr(reader, name)
                with pytest.raises(StoreReadOnly, match="read_only=True"):
                    getattr(reader, name)
            with pytest.raises(AttributeError, match="'StoreReader' object has no attribute 'nothing'"):
                _ = unknown.nothing
            assert repr(reader).startswith("<StoreReader ")
        assert reader.closed
        assert not hasattr(reader, "append")
        with pytest.raises(TypeError, match=r"StoreReader.open"):
            StoreReader(tmp_path)


def _shape(kind: Any, value: object, path: str) -> None:
    """A value has the keys that its TypedDict names, and those of dicts inside as well."""
    if not typing.is_typeddict(kind):
        return
    assert isinstance(value, dict), path
    hints = typing.get_type_hints(kind)
    assert set(value) == set(hints), path
    for name, one in hints.items():
        _shape(one, value[name], f"{path}.{name}")


def test_stats_have_the_keys_that_their_types_say(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("t", 0, b"x", deliver_at_ms=1)
        _shape(Stats, store.stats(), "stats")
        with StoreReader.open(tmp_path) as reader:
            _shape(ReaderStats, reader.stats(), "stats")


def test_read_batch_waits_for_the_first_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store, StoreReader.open(tmp_path) as reader:
        began = time.monotonic()
        for wrong in (-1, 1.5, "x", None, True):
            for one in (store, reader):
                with pytest.raises(InvalidMessage, match="wait_ms"):
                    one.read_batch("t", 0, wait_ms=wrong)  # type: ignore[arg-type]
                with pytest.raises(InvalidMessage, match="wait_ms"):
                    asyncio.run(one.read_batch_async("t", 0, wait_ms=wrong))  # type: ignore[arg-type]
        assert len(store.read_batch("t", 0, wait_ms=30)) == 0
        assert time.monotonic() - began >= 0.03
        for at, one in enumerate((store, reader)):
            got: list[bytes] = []

            def wait(one: StoreReader = one, at: int = at, got: list[bytes] = got) -> None:
                got += map(bytes, one.read_batch("t", 0, at, wait_ms=60_000).payloads())

            thread = threading.Thread(target=wait)
            thread.start()
            store.append("t", 0, b"%d" % at)
            thread.join(PATIENCE_S)
            assert got == [b"%d" % at]
            assert len(one.read_batch("t", 0, 0, wait_ms=60_000)) == at + 1


async def _awaited(store: MessageStore, reader: StoreReader) -> None:
    waiting = [asyncio.ensure_future(one.read_batch_async("t", 0, 0, wait_ms=60_000)) for one in (store, reader)]
    await asyncio.sleep(0)
    await store.append_async("t", 0, b"first")
    for one in waiting:
        assert [bytes(data) for data in (await one).payloads()] == [b"first"]
    await store.flush_async()
    late = await store.append_async("t", 0, b"late", deliver_at_ms=4_000_000_000_000)
    assert await store.reschedule_delayed_async("t", 0, late, 4_100_000_000_000)
    assert await store.cancel_delayed_async("t", 0, late)
    assert not await store.cancel_delayed_async("t", 0, late)
    assert await store.trim_async("t", 0, 1) == 1
    assert await store.delete_topic_async("t")
    assert store.topics() == []


def test_coroutines_have_all_calls_that_wait(tmp_path: Path) -> None:
    async def program() -> None:
        store = MessageStore.open(tmp_path)
        reader = StoreReader.open(tmp_path)
        await _awaited(store, reader)
        await reader.aclose()
        await store.aclose()
        assert store.closed
        assert reader.closed
        with pytest.raises(StoreClosed):
            await store.flush_async()
        with pytest.raises(StoreClosed):
            await reader.read_batch_async("t", 0)

    asyncio.run(asyncio.wait_for(program(), PATIENCE_S))


def test_a_subscription_gives_message_by_message_until_it_is_closed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        sub = store.subscribe("t", "s")
        store.append_batch([("t", 0, b"%d" % at) for at in range(3)])
        seen = []
        for delivery in sub:
            seen.append(delivery.message.data)
            assert sub.backlog().in_flight == 1  # no other waits while this one is worked on
            sub.ack(delivery)
            if len(seen) == 3:
                threading.Timer(0.05, sub.close).start()
        assert seen == [b"0", b"1", b"2"]
        with pytest.raises(SubscriptionClosed):
            list(sub)  # it was closed before
        with pytest.raises(TypeError):
            _ = seen[0] in sub  # type: ignore[operator]  # no search, which would take messages and wait for more


def test_a_subscription_gives_coroutines_message_by_message(tmp_path: Path) -> None:
    async def program(sub: Subscription) -> list[bytes]:
        seen, again = [], False
        async for delivery in sub:
            if not again:
                await sub.extend_async(delivery, 10_000)
                await sub.nack_async(delivery)
                again = True
                continue
            seen.append(delivery.message.data)
            await sub.ack_async(delivery)
            if len(seen) == 2:
                break
        await sub.seek_async("earliest")
        seen += [delivery.message.data for delivery in sub.receive()]
        return seen

    with MessageStore.open(tmp_path) as store:
        store.append_batch([("t", 0, b"%d" % at) for at in range(2)])
        with store.subscribe("t", "s") as sub:
            found = asyncio.run(asyncio.wait_for(program(sub), PATIENCE_S))
    assert found == [b"0", b"1", b"0", b"1"]


def test_a_time_that_a_test_moves(tmp_path: Path) -> None:
    clock = importlib.import_module("stratalog.testing").VirtualClock()
    with MessageStore.open(tmp_path, StoreConfig(), clock=clock) as store:
        now = clock.wall_ms()
        store.append("t", 0, b"late", deliver_at_ms=now + 60_000)
        assert store.read("t", 0)[0].timestamp_ms == now
        with store.subscribe("t", "s") as sub:
            assert sub.receive() == []
            assert clock.advance(ms=60_000) == now + 60_000
            deadline = time.monotonic() + PATIENCE_S
            while not (found := sub.receive()):
                assert time.monotonic() < deadline
            assert [delivery.message.data for delivery in found] == [b"late"]
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(ms=-1)


def test_a_program_over_the_face_runs(tmp_path: Path) -> None:
    """mypy --strict looks at it with all other files, and knows what a reader has not."""
    path = str(tmp_path)
    assert face_program.write(path) > 4096
    assert face_program.look(path) == [b"one", b"two"]
    assert face_program.plan(path) == 2
    assert asyncio.run(face_program.work(str(tmp_path / "simulated"))) == 0
    with pytest.raises(StoreReadOnly):
        face_program.mistake(path)


def test_a_program_over_the_face_of_another_process_runs(tmp_path: Path) -> None:
    endpoint = importlib.import_module("stratalog.endpoint").RocketMQEndpoint
    with MessageStore.open(tmp_path) as store, endpoint(store) as served:
        assert face_program.far(served.address) == 1
