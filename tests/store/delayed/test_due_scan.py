"""Scans of the log for delivery times: of all streams, and of those of one topic alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed import due_scan
from stratalog.store.delayed.due_scan import DueScan
from stratalog.store.format.footer import Footer
from stratalog.store.log.streams import Stream
from stratalog.store.read.scan import NO_OFFSET, checked_footer

from ...seeds import draw_seed
from ..helpers import tiny, until
from .consumer import Hand, topic_of

HOUR_MS = 3_600_000
LINEAR = 6

Row = tuple[int, int, int]


def rows_of(scan: DueScan) -> list[Row]:
    """What a scan gives from its place on: stream number, offset and time."""
    return [
        (int(number), int(offset), int(time_ms))
        for part in scan.parts(0)
        for number, offset, time_ms in zip(part.numbers, part.offsets, part.times_ms, strict=True)
    ]


@pytest.mark.parametrize("few", [0, 2, 64])
def test_scan_of_some_streams_gives_of_these_what_a_scan_of_all_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """`few`: with 0 all frames are read, as of many streams."""
    rng = random.Random(draw_seed())
    monkeypatch.setattr(due_scan, "STEP_MESSAGES", 9)
    monkeypatch.setattr(due_scan, "FEW_STREAMS", few)
    hand = Hand()
    with hand.open(tmp_path / "s", tiny()) as store:
        (lane,) = store._lanes
        scans = [(DueScan(lane), "")]
        scans += [
            (DueScan(lane, streams=lambda topic=topic: _streams(store, topic)), topic)  # type: ignore[misc]
            for topic in ("a", "b", "c", "never")
        ]
        found: dict[str, list[Row]] = {topic: [] for _, topic in scans}
        for step in range(40):
            for _ in range(rng.randrange(1, 6)):
                topic, queue = rng.choice("abcd"), rng.randrange(1 + step // 14)
                delay = hand.now_ms + HOUR_MS + rng.randrange(1_000) if rng.random() < 0.5 else None
                store.submit(topic, queue, bytes(rng.randrange(4_000)), deliver_at_ms=delay)
            store.flush()
            for scan, topic in scans:
                if rng.random() < 0.5:
                    found[topic] += rows_of(scan)
        until(lambda: len(lane.view.sealed) > 0)
        for scan, topic in scans:
            found[topic] += rows_of(scan)
            assert scan.is_at_end()
        assert found[""] == rows_of(DueScan(lane)) != []
        for topic in "abc":
            wanted = {stream.number for stream in _streams(store, topic)}
            assert [row for row in found[topic] if row[0] in wanted] == [row for row in found[""] if row[0] in wanted]
            assert not few or len(wanted) > few or {row[0] for row in found[topic]} <= wanted


def _streams(store: MessageStore, topic: str) -> list[Stream]:
    return list(store._streams.topics.get(topic, {}).values())


@pytest.mark.parametrize("is_sealed", [False, True])
def test_first_index_of_each_of_many_topics_reads_the_frames_of_its_own(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch, is_sealed: bool
) -> None:
    frames, real = [0], due_scan._frame_at

    def frame_at(*given: object) -> object:
        frames[0] += 1
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(due_scan, "_frame_at", frame_at)

    def read(path: Path, topics: int) -> int:
        with hand.open(path, tiny(segment_bytes=512 << 10)) as store:
            for topic in range(topics):
                store.append(f"t{topic}", 0, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
            while is_sealed and not store._lanes[0].view.sealed:
                store.append("other", 0, bytes(20_000))
            frames[0] = 0
            for topic in range(topics):
                until(lambda topic=topic: topic_of(store, f"t{topic}").pending == 1)  # type: ignore[misc]
            return frames[0]

    assert read(tmp_path / "many", 40) <= LINEAR * read(tmp_path / "few", 10)


def test_streams_that_a_scan_has_not_known_are_found_when_their_messages_come(store: MessageStore, hand: Hand) -> None:
    (lane,) = store._lanes
    scan = DueScan(lane, streams=lambda: _streams(store, "t"))
    assert rows_of(scan) == []
    for queue in range(3):
        store.append("t", queue, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
        assert np.array(rows_of(scan)).tolist() == [[queue, 0, hand.now_ms + HOUR_MS]]


def test_segment_that_has_one_of_a_topics_queues_is_read(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", tiny()) as store:
        (lane,) = store._lanes
        for queue in range(3):
            store.append("t", queue, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
            while len(lane.view.sealed) <= queue:
                store.append("other", 0, bytes(20_000))
        found = rows_of(DueScan(lane, streams=lambda: _streams(store, "t")))
        assert [offset for _, offset, _ in found] == [0, 0, 0]


def test_columns_of_a_footer_are_read_as_often_for_many_queues_as_for_one(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that is not held in memory is read whole at each use."""
    uses, real = [0], Footer.taken

    def taken(*given: Any) -> object:
        uses[0] += 1
        return real(*given)

    with hand.open(tmp_path / "s", tiny()) as store:
        (lane,) = store._lanes
        for queue in range(40):
            store.append("t", queue, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
        while not lane.view.sealed:
            store.append("other", 0, bytes(20_000))
        sealed = max(lane.view.sealed, key=lambda one: int(one.footer.counts.size))
        footer, numbers = checked_footer(sealed), [stream.number for stream in _streams(store, "t")]
        there = [number for number in numbers if sealed.first_of(number)[1]]
        assert len(there) > 5
        monkeypatch.setattr(Footer, "taken", taken)
        found = []
        for wanted in (there[:1], there):
            uses[0] = 0
            offsets = due_scan._sealed_of(sealed, footer, wanted).offsets
            found.append((uses[0], int((offsets != NO_OFFSET).sum())))
        assert found[0][0] == found[1][0] and (found[0][1], found[1][1]) == (1, len(there))
