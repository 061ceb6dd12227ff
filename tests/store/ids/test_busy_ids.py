"""A transaction whose ids others have on their way waits for all of them at once, and looks at what is left again."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from stratalog import MessageStore
from stratalog.store.format.message_ids import digest_of
from stratalog.store.log.message_ids import PendingId
from stratalog.store.subscriptions.joint_ids import JointIds
from stratalog.store.topics.id_window import IdWindow
from tests.seeds import draw_seed

from ..helpers import start, tiny, until

IDS = 40


class Rounds:
    """How many requests each look of a commit has told to wait for, and how many ids it looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy, self.looks = list[int](), list[int]()
        real, looked = JointIds.admit, [0]

        def counted(ids: JointIds, *given: Any) -> Sequence[Any]:
            looked[0] = 0
            found = real(ids, *given)
            self.looks.append(looked[0])
            self.busy.append(len(found))
            return found

        def expired(window: IdWindow, now_ms: int, real: Any = IdWindow.expire) -> None:
            looked[0] += 1
            real(window, now_ms)

        monkeypatch.setattr(JointIds, "admit", counted)
        monkeypatch.setattr(IdWindow, "expire", expired)


def on_the_way(store: MessageStore, number: int) -> PendingId:
    """An append that has an id on its way, as far as others see it."""
    windows = store._identified.windows
    window = windows.of("t")
    pending = PendingId(windows.target("t", window, store._lanes[0]), digest_of(b"%d" % number), 0)
    assert window.admit(pending.digest, pending) is None
    return pending


def commit(store: MessageStore, how: str, offsets: list[int]) -> None:
    async def in_loop() -> None:
        async with store.transaction() as tx:
            for number in range(IDS):
                tx.append("t", 0, b"%d of the transaction" % number, message_id=str(number))
        offsets.extend(map(int, tx.offsets))

    if how == "loop":
        asyncio.run(in_loop())
        return
    with store.transaction() as tx:
        for number in range(IDS):
            tx.append("t", 0, b"%d of the transaction" % number, message_id=str(number))
    offsets.extend(map(int, tx.offsets))


@pytest.mark.parametrize("how", ["thread", "loop"])
def test_it_waits_once_for_all_and_passes_over_what_others_have_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Literal["thread", "loop"]
) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        others = [on_the_way(store, number) for number in range(IDS)]
        rounds, offsets = Rounds(monkeypatch), list[int]()
        committing = start(commit, store, how, offsets)
        until(lambda: len(rounds.busy) == 1)
        for number, one in enumerate(others):
            if number % 2:  # it is stored after all, by another append
                one.fail(None)
                store.append("t", 0, b"%d of another one" % number, message_id=str(number))
        assert len(rounds.busy) == 1, "it waits for the others still"
        for one in others[::2]:
            one.fail(None)
        committing.join()
        assert rounds.busy == [IDS, 0]
        messages = {one.data: one.offset for one in store.read("t", 0, max_messages=1000)}
        assert offsets == [
            messages[b"%d of %s" % (number, b"another one" if number % 2 else b"the transaction")]
            for number in range(IDS)
        ]
        assert len(messages) == IDS


def test_what_others_have_stored_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others begin with one more id each time that it has waited: then it waits no more often than it has ids."""
    with MessageStore.open(tmp_path, tiny()) as store:
        rounds, offsets = Rounds(monkeypatch), list[int]()
        held = [on_the_way(store, 0)]
        committing = start(commit, store, "thread", offsets)
        for number in range(1, IDS + 1):
            until(lambda: len(rounds.busy) == len(held))
            before = held[-1]
            if number < IDS:
                held.append(on_the_way(store, number))
            before.fail(None)  # an append that comes next stores it
            store.append("t", 0, b"of another one", message_id=str(number - 1))
        committing.join()
        assert len(rounds.busy) <= IDS + 2
        assert all(looks <= IDS + 2 - at for at, looks in enumerate(rounds.looks)), rounds.looks
        assert sorted(offsets) == list(range(IDS))
        assert store.queue_bounds("t", 0) == (0, IDS)


def test_by_threads_each_id_is_stored_once_and_all_get_its_offset(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        found: dict[int, set[tuple[int, int]]] = {number: set() for number in range(200)}
        lock = threading.Lock()

        def produce(seed: int) -> None:
            mine = random.Random(seed)
            for _ in range(6):
                numbers = mine.sample(range(200), mine.choice([1, 3, 60]))
                with store.transaction() as tx:
                    for number in numbers:
                        tx.append("t", number % 2, b"%d" % number, message_id=str(number))
                with lock:
                    for number, offset in zip(numbers, tx.offsets, strict=True):
                        found[number].add((number % 2, int(offset)))

        workers = [start(produce, rng.randrange(1 << 30)) for _ in range(6)]
        for worker in workers:
            worker.join()
        assert all(len(places) <= 1 for places in found.values())
        stored = Counter(one.data for queue in range(2) for one in store.read("t", queue, max_messages=1000))
        assert stored == Counter(b"%d" % number for number, places in found.items() if places)
