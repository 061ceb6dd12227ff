"""What is with the device, and not durable yet, no reader is given."""

from __future__ import annotations

from pathlib import Path

from stratalog.store import MessageStore

from .disks import GatedDisk
from .helpers import scanned, small


def test_what_is_still_being_written_is_given_by_no_call(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, small(), disk=disk) as store:
        for number in range(3):
            store.append("t", 0, b"durable %d" % number)
        disk.gate.clear()
        ticket = store.submit("t", 0, b"not yet")
        disk.waiting.acquire()  # the write is with the device now
        durable = [b"durable %d" % number for number in range(3)]
        try:
            assert scanned(store) == {("t", 0): dict(enumerate(durable))}
            assert [message.data for message in store.read("t", 0)] == durable
            assert store.get_range("t", 0, 0, 10) == dict(enumerate(durable))
            assert len(store.read_batch("t", 0)) == 3
            assert store.queue_bounds("t", 0) == (0, 3)
        finally:
            disk.gate.set()  # else no close would end
        assert ticket.result() == 3
        assert scanned(store)["t", 0][3] == b"not yet"
