"""The message cache of a store: tiers, block chains, admission and edges."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from .admission import EVERYTHING, Admission
from .batch import Batch, grown
from .block_cache import BlockCache, CachedMessages
from .config import CacheConfig, TunedCacheConfig
from .cursors import ActiveCursors
from .edge import EdgeCache, Edges
from .tier import Tier

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NO_EDGES = Edges((), (), ())


class MessageCache:
    """The message cache. A store fills it after its appends, and reads it before the device.

    One thread fills, a batch of a few hundred messages or more at a time: a call costs some 200 us, so gather small
    frames of a dozen messages first. Any number of threads read and release; these never wait for a fill.
    """

    def __init__(self, config: CacheConfig) -> None:
        """Raises CacheUnusable if a tier cannot get its memory, InvalidCacheConfig."""
        self.config = tuned = TunedCacheConfig.of(config)
        self.admission = Admission(config.expected_bytes)
        self.cursors = ActiveCursors(tuned.active_backlog_messages) if config.readers == "near" else None
        tiers = config.open_tiers()
        with ExitStack() as undo:
            for tier in tiers:
                undo.callback(tier.close)
            self.blocks = BlockCache(tiers, tuned.block_bytes, evict=tuned.evicts, remainders=tuned.remainders)
            size = tuned.size_of_edges
            self.edges = EdgeCache(Tier("off-heap", size)) if size else None
            undo.pop_all()
        self.not_admitted_messages = 0
        self.not_admitted_bytes = 0
        self._floors = np.zeros(0, np.int64)  # by stream: messages below were released
        self._raising = threading.Lock()
        self.all_below_bytes = EVERYTHING  # each shorter message that came was cached

    def fill(
        self, batch: Batch, positions: npt.ArrayLike | None = None, is_intact: Callable[[], bool] = lambda: True
    ) -> Mask:
        """Cache the admitted messages. Returns (n,) which they are. `is_intact`: see `BlockCache.fill`.

        With `positions` (n,), the payloads' positions on the device, the edges of the others are kept. With active
        cursors, messages that no active reader will want soon are left out.
        """
        unread = self._unread(batch)
        if unread is None:
            return self._fill(batch, None if positions is None else np.asarray(positions, np.int64), is_intact)
        cached = np.zeros(len(batch), np.bool_)
        places = None if positions is None else np.asarray(positions, np.int64)[unread]
        cached[unread] = self._fill(batch.part(unread), places, is_intact)
        return cached

    def _unread(self, batch: Batch) -> Mask | None:
        """(n,) which messages were not released before they came; None if none was released."""
        floors = self._floors
        if not len(floors):
            return None
        known = np.minimum(batch.streams, len(floors) - 1)
        unread = np.asarray((batch.offsets >= floors[known]) | (known != batch.streams))
        return None if bool(unread.all()) else unread

    def _fill(self, batch: Batch, positions: Ints | None, is_intact: Callable[[], bool]) -> Mask:
        self.blocks.settle()
        admitted = self.admission.admit(batch.lengths, self.blocks.free_bytes, self.blocks.largest_room())
        if self.cursors is not None:
            admitted &= self.cursors.wanted(batch.streams, batch.offsets)
        if bool(admitted.all()):
            cached = self.blocks.fill(batch, is_intact)
        else:
            cached = np.zeros(len(batch), np.bool_)
            cached[admitted] = self.blocks.fill(batch.part(admitted), is_intact)
            left_out = batch.lengths[~admitted]
            self.not_admitted_messages += len(left_out)
            self.not_admitted_bytes += int(left_out.sum())
        if bool(cached.all()):
            return cached
        self.left_out(batch.lengths[~cached])
        if self.edges is not None and positions is not None:
            self.edges.fill(batch.part(~cached), positions[~cached], is_intact)
        return cached

    def left_out(self, lengths: Ints) -> None:
        """Messages of these lengths are not cached, for any reason."""
        self.all_below_bytes = min(self.all_below_bytes, int(lengths.min(initial=EVERYTHING)))

    def read(self, stream: int, offset: int, limit: int) -> CachedMessages:
        """The cached messages among the `limit` ones from `offset` on; see `BlockCache.read`."""
        return self.blocks.read(stream, offset, limit)

    def read_edges(self, stream: int, offset: int, limit: int) -> Edges:
        """The kept fragments of messages that are not cached; see `EdgeCache.read`."""
        return NO_EDGES if self.edges is None else self.edges.read(stream, offset, limit)

    def release(self, stream: int, offset: int) -> None:
        """All readers of the stream are at `offset` or after it, also if earlier messages are still to come."""
        self._raise_floor(stream, offset)
        self.blocks.release(stream, offset)
        if self.edges is not None:
            self.edges.release(stream, offset)

    def _raise_floor(self, stream: int, offset: int) -> None:
        with self._raising:
            self._floors = grown(self._floors, stream, 0)
            self._floors[stream] = max(self._floors[stream], offset)

    def stats(self) -> dict[str, object]:
        """Plain, nested and JSON-ready figures."""
        found = self.blocks.stats()
        found["threshold_bytes"] = self.admission.threshold_bytes
        found["all_below_bytes"] = self.all_below_bytes
        found["not_admitted_messages"] = self.not_admitted_messages
        found["not_admitted_bytes"] = self.not_admitted_bytes
        found["capacity_bytes"] = self.blocks.capacity_bytes
        found["used_bytes"] = self.blocks.used_bytes
        found["edges"] = {} if self.edges is None else self.edges.cache.stats()
        return found

    def close(self) -> None:
        """Free all memory; reads find nothing from now on."""
        self.blocks.close()
        if self.edges is not None:
            self.edges.close()
