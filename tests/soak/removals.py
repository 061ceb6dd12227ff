"""What the store takes out of its log, and what is in it: told before a file loses its name.

The log may lose a segment in two ways (docs/reference/limits.md): by retention, while the store is larger than
`retention_bytes`; or because nothing is in it but the store's own records, which are written again. An observer from
outside cannot tell them apart afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from stratalog.store.format.hidden import is_hidden
from stratalog.store.log.removal import Removal
from stratalog.store.log.retention import size_of
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.segment.sealed import SealedSegment

Row = tuple[int, int, int, int]  # lane, segment, messages of users in it, bytes of the log before it goes
Wanted = Callable[[Sequence[SealedSegment], int], bool]


@contextmanager
def told_removals(tell: Callable[[list[Row]], object]) -> Iterator[None]:
    """While it lasts, `tell` is called with the segments that are about to go, of all stores of this process."""
    remove_oldest, remove = Removal._remove_oldest, Removal._remove
    held_bytes = 0  # when retention decided: a segment that is sealed since then has become smaller

    def deciding(self: Removal, lane: WrittenLane, wanted: Wanted, **how: Any) -> bool:
        nonlocal held_bytes
        held_bytes = on_disk(self)
        return remove_oldest(self, lane, wanted, **how)

    def removing(self: Removal, lane: WrittenLane, sealed: Sequence[SealedSegment]) -> None:
        left_bytes, rows = max(held_bytes, on_disk(self)), list[Row]()
        for one in sealed[:-1]:
            rows.append((lane.index, one.segment.sequence, users_messages(lane, one), left_bytes))
            left_bytes -= one.segment.path.stat().st_size
        tell(rows)
        remove(self, lane, sealed)

    with mock.patch.object(Removal, "_remove_oldest", deciding), mock.patch.object(Removal, "_remove", removing):
        yield


def on_disk(removal: Removal) -> int:
    """The bytes of the files of all segments in use."""
    views = [lane.view for lane in removal._lanes]
    return sum(one.segment.path.stat().st_size for view in views for one in (*view.sealed, *view.open))


def stays(removal: Removal) -> int:
    """The bytes that retention never removes: of the newest sealed segment of each lane, and of open ones."""
    views = [lane.view for lane in removal._lanes]
    newest = sum(size_of(one) for view in views for one in view.sealed[-1:])
    return newest + sum(one.segment.header.capacity_bytes for view in views for one in view.open)


def users_messages(lane: WrittenLane, sealed: SealedSegment) -> int:
    """How many messages of users a segment has."""
    footer = sealed.footer
    counts = zip(footer.numbers.tolist(), footer.counts.tolist(), strict=True)
    return sum(count for number, count in counts if count and not is_hidden(lane.streams[number].topic))
