"""Power cuts while topics are deleted, forgotten and used again: what was acknowledged is there, what was deleted not.

`python -m tests.store.gone_cuts --seeds 200` is the long form of `test_gone_cuts`.
"""

from __future__ import annotations

import argparse
import random
from contextlib import ExitStack
from unittest import mock

from stratalog.store import MessageStore, StoreConfig
from stratalog.store.segment import sealing
from stratalog.store.testing import SimulatedDisk, TunedConfig

from .helpers import simulated_home

FOLDER = simulated_home("gone-cuts")
TOPICS = ("a", "b", "c", "d")
SEGMENT = 1 << 16
MORE_LIVES = 8  # times as many at the most


class Model:
    """What was acknowledged: for each topic that is not deleted its messages by offset, and its low."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, bytes]] = {}
        self.ends: dict[str, int] = {}
        self.lows: dict[str, int] = {}

    def copy(self) -> Model:
        twin = Model()
        twin.topics = {topic: dict(rows) for topic, rows in self.topics.items()}
        twin.ends, twin.lows = dict(self.ends), dict(self.lows)
        return twin

    def appended(self, topic: str, offset: int, data: bytes) -> None:
        """An offset follows the one before, or is 0 where nothing was left of the topic."""
        end = self.ends.get(topic, 0)
        assert offset == end or (offset == 0 and topic not in self.topics), (topic, offset, end)
        self.topics.setdefault(topic, {})[offset] = data
        self.ends[topic] = offset + 1

    def check(self, store: MessageStore) -> None:
        assert store.topics() == sorted(self.topics)
        for topic, rows in self.topics.items():
            first, end = store.queue_bounds(topic, 0)
            assert end == self.ends[topic], topic
            assert first >= self.lows.get(topic, 0), topic
            got = (
                {message.offset: message.data for message in store.read(topic, 0, first, max_messages=1 << 20)}
                if first < end
                else {}
            )
            assert got == {offset: data for offset, data in rows.items() if offset >= first}, topic


def run(seed: int, lives: int = 14) -> tuple[int, int]:
    """Some lives of a store, and power cuts at random: (how many cuts were opened, how many streams were forgotten).

    How soon something is forgotten goes by the background's pace. So there are more lives until something was.
    """
    chance = random.Random(seed)
    small = {"FEW_STREAMS": 0, "SMALL_SHARE": 0, "GROUP_SEGMENTS": 4} if seed % 2 else {}
    with ExitStack() as patched:
        for name, value in small.items():
            patched.enter_context(mock.patch.object(sealing, name, value))
        lanes = 1 + seed // 2 % 2
        config = TunedConfig(lanes=lanes, segment_bytes=SEGMENT, prewrite_bytes=0, retention_bytes=lanes * 5 * SEGMENT)
        disk, model, opened, forgotten = SimulatedDisk(), Model(), 0, 0
        for life in range(MORE_LIVES * lives):
            if life >= lives and forgotten:
                break
            cuts: list[tuple[SimulatedDisk, Model]] = []
            with MessageStore.open(FOLDER, config, disk=disk) as store:
                model.check(store)
                forgotten += sum(len(lane.gone) for lane in store._lanes)
                for _ in range(chance.randrange(5, 60)):
                    step(store, model, chance)
                    if chance.random() < 0.1:
                        cuts.append((disk.crash(chance), model.copy()))
                cuts.append((disk.crash(chance), model.copy()))
            for cut, known in cuts:
                look(cut, known, config, chance)
            opened += 2 * len(cuts)
            if chance.random() < 0.5:
                disk = cuts[-1][0]
    return opened, forgotten


def look(cut: SimulatedDisk, model: Model, config: StoreConfig, chance: random.Random) -> None:
    """Open what a power cut has left, go on, cut again, open."""
    twin, cut = model.copy(), cut.copy()
    with MessageStore.open(FOLDER, config, disk=cut) as store:
        twin.check(store)
        for _ in range(chance.randrange(20)):
            step(store, twin, chance)
        cut = cut.crash(chance)
    with MessageStore.open(FOLDER, config, disk=cut) as store:
        twin.check(store)


def step(store: MessageStore, model: Model, chance: random.Random) -> None:
    topic = chance.choice(TOPICS)
    what = chance.random()
    if what < 0.35:
        for lane in range(3):
            data = bytes([lane]) * (SEGMENT // 4)
            model.appended(f"live{lane}", store.append(f"live{lane}", 0, data), data)
    elif what < 0.75:
        data = chance.randbytes(chance.choice((5, 2_000)))
        model.appended(topic, store.append(topic, 0, data), data)
    elif what < 0.85 and topic in model.topics:
        low = chance.randint(0, model.ends[topic])
        store.trim(topic, 0, low)
        model.lows[topic] = max(model.lows.get(topic, 0), low)
    elif what >= 0.85:
        assert store.delete_topic(topic) == (topic in model.topics)
        if model.topics.pop(topic, None) is not None:
            model.lows[topic] = 0


def main() -> None:
    """Run some seeds, and say how many cuts were opened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    opened = forgotten = 0
    for seed in range(given.first, given.first + given.seeds):
        try:
            found = run(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        opened, forgotten = opened + found[0], forgotten + found[1]
    print(f"{given.seeds} seeds, {opened} power cuts opened, {forgotten} streams forgotten: every message in its place")


if __name__ == "__main__":
    main()
