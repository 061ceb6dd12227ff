"""The message ids of a transaction: what its topics have seen is left out of it, and answered beside the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..device.clock import Clock
from ..format.arrays import Int64s
from ..log.joint_group import Blocks
from ..log.message_ids import IdTarget, PendingIds
from ..log.request import Request
from ..topics.id_window import IdWindow
from ..topics.id_windows import IdWindows


class JointIds:
    """The ids of the messages of one commit.

    Invariant: while it waits for other appends, none of its own ids is on its way: so no two wait for each other.

    It waits for all ids at once that others have on their way, and looks at no id again whose message the topic has. So
    it waits again only if others have begun appends with more of its ids meanwhile, or appends of others have failed;
    and not more often than it has ids, where none fails. A look costs by the ids that are left.

    Attributes:
        ids: on their way with this commit.
        stored: the numbers of the messages that it stores, once `admit` has let them in.
    """

    def __init__(self, windows: IdWindows, clock: Clock, digests: Sequence[bytes | None]) -> None:
        """`digests`: of each message's id; None for none."""
        self._windows = windows
        self._clock = clock
        self._digests = digests
        self.ids: list[PendingIds] = []
        self.stored: list[int] = []
        self._found: dict[int, int] = {}  # offsets of messages that the topic has had
        self._same: dict[int, int] = {}  # of messages with the id of an earlier one of the transaction: which

    def admit(self, names: Sequence[tuple[str, int]], blocks: Blocks) -> Sequence[Request]:
        """Let the ids of messages with these names in: (). Or all that is to be waited for; then nothing is on its way,
        and the caller calls this again after the wait.

        `blocks`: of the messages, or none if all are in one: a `PendingIds` has those of one block.

        Whether a topic is full or has a queue is not asked: that is for what is stored. Raises StoreCorrupt,
        StoreUnreadable, StoreUnusable; then nothing is on its way either.
        """
        busy: dict[Request, None] = {}  # of others, each once
        try:
            self._admit(names, blocks, busy)
        except BaseException:
            self._give_back()
            raise
        if busy:
            self._give_back()
        return tuple(busy)

    def _admit(self, names: Sequence[tuple[str, int]], blocks: Blocks, busy: dict[Request, None]) -> None:
        by_target: dict[tuple[IdTarget, int], tuple[list[bytes], list[int], list[int]]] = {}
        made: dict[tuple[IdTarget, int], PendingIds] = {}
        first_of: dict[tuple[str, bytes], int] = {}
        self.ids, self.stored, self._same = [], [], {}
        for row, digest in enumerate(self._digests):
            topic, queue_id = names[row]
            if digest is None:
                self.stored.append(row)
                continue
            if row in self._found:
                continue
            if (topic, digest) in first_of:
                self._same[row] = first_of[topic, digest]
                continue
            window = self._windows.of(topic)
            window.expire(self._clock.wall_ms())
            if busy:  # nothing more is let in: only what else there is to wait for
                self._look(window, row, digest, busy)
                continue
            target = self._windows.target(topic, window, self._windows.lane_of(topic, queue_id))
            key = target, blocks[row] if blocks else 0
            if key not in made:
                by_target[key] = [], [], []
                made[key] = PendingIds(target, *by_target[key])
                self.ids.append(made[key])
            digests, queue_ids, places = columns = by_target[key]
            digests.append(digest)  # first: an interrupt finds all that is admitted
            queue_ids.append(queue_id)
            places.append(len(self.stored))
            found = window.admit(digest, made[key])
            while found is not None and not isinstance(found, int):
                promise = window.promise_of(found)
                if promise is not None:
                    busy[promise] = None
                    break
                found = window.admit(digest, made[key])
            if found is None:
                first_of[topic, digest] = row
                self.stored.append(row)
                continue
            for column in columns:
                column.pop()
            if isinstance(found, int):
                self._found[row] = found
        self.ids = [one for one in self.ids if one.digests]

    def _look(self, window: IdWindow, row: int, digest: bytes, busy: dict[Request, None]) -> None:
        """Note where the message of an id is, or what to wait for if others have the id on its way."""
        found = window.find(digest)
        if isinstance(found, int):
            self._found[row] = found
        elif found is not None and (promise := window.promise_of(found)) is not None:
            busy[promise] = None

    def _give_back(self) -> None:
        for one in self.ids:
            one.fail(None)  # nothing was put

    def take_back(self, error: BaseException) -> None:
        """The commit has raised: unless a queue has the ids, others with them try by themselves."""
        for one in self.ids:
            one.take_back(error)

    def offsets_of(self, stored: Int64s) -> Int64s:
        """The offsets of all messages, from those of the stored ones."""
        offsets = np.empty(len(self._digests), np.int64)
        offsets[self.stored] = stored[: len(self.stored)]
        for row, offset in self._found.items():
            offsets[row] = offset
        for row, first in self._same.items():
            offsets[row] = offsets[first]
        return offsets
