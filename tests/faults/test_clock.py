"""A clock that jumps: times are facts for readers, and nothing that the store promises hangs on them."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from stratalog.store import MessageStore, verify_folder
from tests.store.helpers import contents, crash_copy, tiny, until

from ..seeds import draw_seed

SECOND_NS = 1_000_000_000
YEAR_NS = 365 * 86_400 * SECOND_NS
REAL = time.time_ns


class Clock:
    """Stands in for the system's clock; `jump` moves it."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def __call__(self) -> int:
        return REAL() + self.ahead_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time_ns", made)
    return made


@pytest.mark.parametrize("lanes", [1, 3])
def test_order_and_content_are_kept_when_the_clock_jumps_at_every_append(
    tmp_path: Path, clock: Clock, lanes: int
) -> None:
    chance = random.Random(draw_seed())
    sent: dict[tuple[str, int], dict[int, bytes]] = {("t", queue): {} for queue in range(4)}
    with MessageStore.open(tmp_path / "a", tiny(lanes=lanes)) as store:
        for index in range(200):
            clock.ahead_ns = chance.randrange(-40 * YEAR_NS, 40 * YEAR_NS)
            data = b"%d" % index * 400
            sent["t", index % 4][store.append("t", index % 4, data)] = data
        assert contents(store, list(sent)) == sent
        crash_copy(tmp_path / "a", tmp_path / "b")
    for path in (tmp_path / "a", tmp_path / "b"):
        clock.ahead_ns = chance.randrange(-40 * YEAR_NS, 40 * YEAR_NS)
        with MessageStore.open(path, tiny()) as store:
            assert contents(store, list(sent)) == sent
        assert verify_folder(path).ok


@pytest.mark.parametrize("now_ns", [0, -YEAR_NS, 1 << 62], ids=["1970", "before 1970", "far away"])
def test_clock_that_was_never_set_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now_ns: int
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(60):
            store.append("t", 0, bytes(3000))
        assert store.read_batch("t", 0).times_ms[0] == now_ns // 1_000_000
    monkeypatch.undo()
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, 60)


def test_retention_by_age_never_takes_the_newest_segment_however_far_the_clock_jumps(
    tmp_path: Path, clock: Clock
) -> None:
    with MessageStore.open(tmp_path, tiny(retention_ms=3_600_000)) as store:
        for _ in range(60):
            store.append("t", 0, bytes(3000))
        clock.ahead_ns = YEAR_NS
        store.append("t", 0, b"after the jump")
        until(lambda: store.queue_bounds("t", 0)[0] > 0)
        first, end = store.queue_bounds("t", 0)
        assert first < end == 61
        assert store.read("t", 0, 60)[0].data == b"after the jump"


def test_retention_by_age_keeps_everything_when_the_clock_jumps_back(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, tiny(retention_ms=3_600_000)) as store:
        for index in range(120):
            clock.ahead_ns = -index * YEAR_NS // 100
            store.append("t", 0, bytes(3000))
        until(lambda: store.stats()["segments"]["sealed"] > 3)
        assert store.queue_bounds("t", 0) == (0, 120)


def test_wait_for_a_message_is_not_measured_by_the_clock(tmp_path: Path, clock: Clock) -> None:
    """It would end at once, or a year later."""
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        for ahead_ns in (YEAR_NS, -YEAR_NS):
            clock.ahead_ns = ahead_ns
            assert store.read("t", 0, 1, wait_ms=30) == []
