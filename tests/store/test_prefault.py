"""Pages brought in ahead of need: into the page cache, and into the mapping that they are copied from."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore
from stratalog.store.device.os_file import OsFile
from stratalog.store.device.prefault import populate
from tests.store.test_direct_reads import CONFIG, drop, fill

from ..seeds import draw_seed

pytestmark = pytest.mark.disk


def resident(mapped: mmap.mmap) -> int:
    """Bytes of the process's mappings of a file of this size that are in its page tables."""
    size, found = len(mapped), 0
    address = np.frombuffer(mapped, np.uint8).ctypes.data
    is_it = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        begin, dash, _ = line.partition("-")
        if dash and " " in line and ":" not in begin:
            is_it = int(begin, 16) <= address < int(begin, 16) + size
        elif is_it and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


def test_pages_are_brought_into_the_mapping_that_they_are_copied_from(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8 << 20))
    file = OsFile(path, create=False, direct=False, write=False)
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    if not populate(file.fileno(), 0, 1 << 20):
        pytest.skip("this system has no MADV_POPULATE_READ")
    assert populate(file.fileno(), 1 << 20, 2 << 20, mapped)
    assert resident(mapped) >= 2 << 20
    assert populate(file.fileno(), 7 << 20, 8 << 20, mapped)  # the file ends before
    os.truncate(path, 4 << 20)
    assert not populate(file.fileno(), 5 << 20, 1 << 20, mapped)  # and no signal
    assert populate(file.fileno(), 0, 1 << 20, mapped)


def test_windows_of_a_reopened_store_come_into_its_mapping(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()))
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.get_range("t", 0, 0, 2) == dict(enumerate(rows[0]))
        segment = store._lanes[0].view.sealed[0].segment
        leased = segment.leased
        if leased is None or not isinstance(leased.memory, mmap.mmap):
            pytest.skip("no leases on this file system")
        drop(tmp_path)
        segment.windows.forget()
        before = resident(leased.memory)
        places = range(0, len(leased.memory), 64 << 10)
        segment.ask(places, [1] * len(places))
        assert segment.windows.all_asked
        assert resident(leased.memory) > before + len(leased.memory) // 3
        for queue, datas in rows.items():
            assert store.get_range("t", queue, 0, 2) == dict(enumerate(datas))
