"""Compares the messages of a store, or of a read, with the written ones. Never inside a timed part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...store import MessageStore
from ...testing import TunedConfig
from .checker import WrongResult
from .contest import Content, Workload


def check_folder(folder: Path, work: Workload) -> int:
    """Open a closed store and compare every message of it. Returns their number."""
    with MessageStore.open(folder, config=TunedConfig(recent_bytes=0)) as store:
        return check_store(store, work)


def check_store(store: MessageStore, work: Workload) -> int:
    """Compare every message of the store with the workload's, to the byte. Returns their number. Raises WrongResult."""
    return check_log(store, work.addresses, work.written.tolist(), work.content)


def check_log(
    store: MessageStore, addresses: Sequence[tuple[str, int]], written: Sequence[int], content: Content
) -> int:
    """Compare all messages of queues that are numbered by their place in `addresses`; each has so many `written`.

    Raises WrongResult if a message is lost, repeated, out of order or damaged, or was never written.
    """
    numbers = {tuple(address): queue for queue, address in enumerate(addresses)}
    seen, matches = [0] * len(addresses), content.matches
    for batch in store.scan():
        names = batch.stream_names
        rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
        for index, offset, data in rows:
            queue = numbers.get(tuple(names[index]), -1)
            if queue < 0 or offset != seen[queue] or not matches(bytes(data), queue, offset):
                raise WrongResult(f"{names[index]}: what the scan gives at offset {offset} is not what was written")
            seen[queue] = offset + 1
    for queue, count in enumerate(written):
        if seen[queue] != count:
            raise WrongResult(f"{addresses[queue]} holds {seen[queue]} messages, written were {count}")
    return sum(seen)


def check_payloads(content: Content, queue: int, offset: int, payloads: Iterable[bytes | memoryview]) -> int:
    """Compare the messages of one queue from `offset` on. Returns their number. Raises WrongResult."""
    at = offset
    for data in payloads:
        if not content.matches(bytes(data), queue, at):
            raise WrongResult(f"queue {queue}: what came at offset {at} is not what was written")
        at += 1
    return at - offset
