"""Questions to the index of a topic about its delayed messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ...index import TrackerDamaged
from ..errors import OffsetOutOfRange, StoreCorrupt
from ..format.arrays import Bools, Int64s
from ..read.message import Message
from .due_scan import reached
from .parts import MOST_ENTRY, are_among, places_of
from .topic_index import TopicIndex

READ_MESSAGES = 1024
READ_BYTES = 4 << 20


def fetch(topic: TopicIndex, queue_id: int, offset: int) -> Message | None:
    """A message, from its queue or from its copy; None if it was removed. Raises StoreCorrupt, OSError."""
    stream = topic.parts.stream(topic.name, queue_id)
    if stream is None or offset < stream.low:
        return None
    with suppress(OffsetOutOfRange):
        found = topic.parts.reader.read(stream, offset, 1, 1)
        if found and found[0].offset == offset:
            return found[0]
    before: int | None = None
    while True:
        with topic.lock:
            at = topic.copies.where(queue_id, offset)
        if at is None or at == before:
            return None
        copy = topic.copies.read(queue_id, offset, at)
        if copy is not None:
            return copy
        before = at  # once more, if there is a newer copy meanwhile


def fetch_all(topic: TopicIndex, queue_id: int, ascending: Int64s) -> Iterator[Message]:
    """Yield the messages of a queue at some offsets, without those that were removed or are damaged. Raises OSError.

    Messages that follow one another are read together.
    """
    stream, at, alone = topic.parts.stream(topic.name, queue_id), 0, 0  # up to `alone`, each is read by itself
    starts = ascending - np.arange(len(ascending))  # alike in a run
    while at < len(ascending):
        offset, found = int(ascending[at]), list[Message]()
        end = offset + int(starts.searchsorted(starts[at], side="right")) - at
        if at >= alone and end - offset > 1 and stream is not None and offset >= stream.low:
            with suppress(StoreCorrupt, OffsetOutOfRange):
                found = topic.parts.reader.read(stream, offset, min(end - offset, READ_MESSAGES), READ_BYTES)
        if found and found[-1].offset < end:
            at += found[-1].offset + 1 - offset
            yield from found
            continue
        alone = max(alone, at + end - offset)
        with suppress(StoreCorrupt):  # a damaged message cannot be copied
            one = fetch(topic, queue_id, offset)
            if one is not None:
                yield one
        at += 1


def are_over(topic: TopicIndex, queue_id: int, offsets: Int64s) -> npt.NDArray[np.bool_]:
    """(n,) which messages are cancelled or trimmed, so that nobody wants them any more."""
    with topic.lock:
        cancelled = topic.changes.are_cancelled(places_of(np.full(len(offsets), queue_id), offsets))
        return cancelled | (offsets < topic.parts.low(topic.name, queue_id))


def were_moved(topic: TopicIndex, places: Int64s) -> Bools:
    """(n,) which messages, by their places, got another delivery time: once one has come, nobody knows when."""
    with topic.lock:
        changes = topic.changes
        moved = np.fromiter((place in changes.moved for place in places.tolist()), np.bool_, len(places))
        found: Bools = moved | are_among(places, changes.come)
        return found


def are_gone(topic: TopicIndex, queue_id: int, offsets: Int64s) -> Bools:
    """(n,) which messages were removed, and have no copy. Under the topic's lock."""
    stream = topic.parts.stream(topic.name, queue_id)
    first, low = (0, 0) if stream is None else (topic.parts.reader.finder.bounds(stream)[0], stream.low)
    return (offsets < low) | ((offsets < first) & ~topic.copies.may_have(queue_id, offsets))


def forget_gone(topic: TopicIndex) -> None:
    """Forget the changes of messages that were removed. Under the topic's lock."""
    places = topic.changes.places()
    for queue_id, rows, offsets in topic.parts.by_queue(topic.name, places):
        topic.changes.forget(places[rows[are_gone(topic, queue_id, offsets)]])


def mended(topic: TopicIndex, queue_id: int, offsets: Int64s, times_ms: Int64s, absent: Bools) -> Bools:
    """(n,) which messages `absent` from the index belong into it, by their times. They are added.

    A frame of the log is damaged there, or the index has missed a message. Under the topic's lock.
    """
    if not absent.any():
        return absent
    places = places_of(np.full(len(offsets), queue_id), offsets)
    times = topic.changes.times_of(places, times_ms)
    topic.given.now_ms()
    lost: Bools = absent & (times > topic.given.latest_ms)
    while lost.any():
        with suppress(TrackerDamaged):  # by one of its files; the index that is made again takes them
            tracker = topic.tracker  # messages trimmed meanwhile have left it, and are not added again
            kept = lost & ~topic.trimmed.are_before(np.full(len(offsets), queue_id), offsets)
            added = tracker.add_messages(queue_id, offsets[kept] & MOST_ENTRY, times[kept])
            topic.count(added)
            topic.mended_messages += added
            break
    return lost


def read_up_to(topic: TopicIndex, queue_id: int) -> int:
    """The first offset of a queue that was not added to the index yet, while the topic lags."""
    stream = topic.parts.stream(topic.name, queue_id)
    if stream is None or topic.scans is None:
        return 1 << 62
    try:
        return reached(stream.lane, topic.scans[stream.lane.index].place, stream.number)
    except StoreCorrupt:  # the scan does not know its messages either, and passes over them
        return 1 << 62


def figures_of(topic: TopicIndex) -> dict[str, Any]:
    """Counts, plain and JSON-ready; bytes and times have their unit in the name."""
    with topic.lock:
        tracker = topic.ask(lambda one: one.stats())  # first: the index may have to be made again
        return {
            "pending": tracker["pending"],
            "next_due_ms": topic.next_due_ms(),
            "cancelled": len(topic.changes.cancelled),
            "moved": len(topic.changes.moved),
            "moved_and_come": len(topic.changes.come),
            "ready": len(topic.due),
            "pointers": len(topic.due.pointers),
            "is_behind": topic.is_lagging,
            "rebuilds": topic.rebuilds,
            "last_rebuild": topic.last_rebuild,
            "last_error": topic.last_error,
            "damaged": None,
            "damaged_frames": topic.damaged_frames,
            "mended_messages": topic.mended_messages,
            "paused": topic.is_full(),
            "memory_limit_bytes": topic.delays.share_bytes,
            "precision_ms": topic.tracker.latest_ms,
            "memory_bytes": tracker["memory_bytes"] + topic.changes.memory_bytes,
            "disk_bytes": tracker["disk_bytes"],
            "buckets": tracker["buckets"],
            "copies": len(topic.copies),
            "copies_damaged": topic.copies.damaged,
            "copies_bytes": topic.copies.size_bytes,
        }
