"""Files that retention recycles while somebody still reads them by what was known of them earlier."""

from __future__ import annotations

from pathlib import Path

from stratalog.store import MessageStore
from tests.store.helpers import tiny, until

SEGMENTS = 8


def test_scan_that_found_a_segment_open_still_reads_it_when_it_was_sealed_and_retired(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=256 << 10)) as store:
        count = 0
        while store.stats()["segments"]["sealed"] < 2:
            store.append("t", 0, bytes(3000))
            count += 1
        scan = store.scan()
        offsets = next(scan).offsets.tolist()  # it knows of all segments now, and has looked into the first
        recycled = store.stats()["log"]["recycled_segments"]

        def push() -> bool:
            store.append("t", 0, bytes(30_000))
            in_use_again = store.stats()["log"]["recycled_segments"] - recycled
            return in_use_again >= SEGMENTS and store.queue_bounds("t", 0)[0] > count

        until(push)
        for batch in scan:
            offsets += batch.offsets.tolist()
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert offsets[-1] >= count - 1
