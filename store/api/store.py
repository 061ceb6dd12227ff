"""The public face: open a folder, append, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, cast, overload

from ..config import StoreConfig, TunedConfig
from ..device.clock import SYSTEM_CLOCK, Clock
from ..device.disk import Disk, OsDisk, takes_direct
from ..device.folder import (
    QUARANTINE,
    STORE_FILE,
    create_store,
    enter_folder,
    fixed_path,
    read_header,
)
from ..errors import InvalidConfig, StoreCorrupt, StoreUnusable
from ..format.layout import BLOCK_BYTES, lane_name
from ..format.store_files import StoreHeader
from ..live.calls import WriterCalls
from ..live.figures_teller import FiguresTeller
from ..live.publisher import Publisher
from ..log.gone import retire_gone
from ..log.lane_machine import LaneMachine
from ..log.upkeep import Upkeep
from ..metrics.family import MOST_NAMED
from ..read.cached import cached_reader
from ..read.feeder import Feeder
from ..recovery.lane_recovery import LaneRecovery
from ..recovery.repair import Loss
from ..topics.id_windows import IdWindows
from .aging import begin_aging
from .appender import Appender
from .async_calls import WritingForCoroutines
from .column_calls import ColumnCalls
from .columns import ColumnAppender
from .delayed_calls import make_delaying
from .fetcher import Fetcher
from .figures import Stats
from .identified import IdentifiedAppender
from .lanes import LaneMaker
from .named_figures import NamedTopics, named_figures, retention_figures
from .shard_calls import ShardCalls, answering, begin_attaching
from .shared import Shared
from .stats import bulk_figures, cache_figures, lane_figures, queue_figures, recovery_figures
from .store_reader import StoreReader, check_arguments
from .subscription_calls import SubscriptionCalls
from .topic_calls import TopicChanges
from .transaction import TransactionParts
from .trimming import TrimChanges
from .watching import figures_for_watchers


class MessageStore(WritingForCoroutines, ColumnCalls, ShardCalls, SubscriptionCalls, StoreReader):
    """An embedded, durable message store in a folder. It reads as a `StoreReader` does, and writes.

    Any number of threads and event loops of one process may use one store object. After `close`, all calls but `close`,
    `closed` and `stats` raise `StoreClosed`. After a failed write or force, appends raise `StorePoisoned`; reads go on.
    """

    _name = "MessageStore"
    _feeder: Feeder | None = None
    _named_topics: NamedTopics
    _streams_beside: int | None = None  # queues without a number, when they were counted
    _lanes: Sequence[LaneMachine]  # a reader's are those of another process

    @overload
    @classmethod
    def open(
        cls, path: str | Path, config: StoreConfig | None = None, *, repair: bool = False,
        read_only: Literal[False] = False, disk: Disk | None = None, clock: Clock | None = None,
    ) -> Self: ...  # fmt: skip

    @overload
    @classmethod
    def open(
        cls, path: str | Path, config: StoreConfig | None = None, *, repair: bool = False,
        read_only: bool, disk: Disk | None = None, clock: Clock | None = None,
    ) -> StoreReader: ...  # fmt: skip

    @classmethod
    def open(
        cls, path: str | Path, config: StoreConfig | None = None, *, repair: bool = False,
        read_only: bool = False, disk: Disk | None = None, clock: Clock | None = None,
    ) -> StoreReader:  # fmt: skip
        """Open the store in a folder. Create it if the folder is new or empty; recover it if it was not closed.

        With `read_only` the result is that of `StoreReader.open`.

        Args:
            path: the folder. It is resolved once: later changes of links and of the working directory have no effect.
            config: the settings; see `StoreConfig`. None takes the defaults.
            repair: True moves on after damage, in place of raising `StoreCorrupt`: damaged ranges are copied to the
                folder `quarantine` and left out. `losses` and `stats()["recovery"]["losses"]` list what was lost.
            read_only: True opens it for reading alone, without a lock; see `StoreReader`.
            disk: another file system, for tests: see `stratalog.testing`. None is the system's.
            clock: another clock, for tests. None is the system's.

        Raises:
            StoreLocked: another process, or another store object of this one, has the folder open.
            StoreCorrupt: durable bytes are damaged or missing; the error has file and position.
            StoreUnusable: the folder cannot be a store, the store has another format version, or a cache cannot get its
                memory.
            StoreFull: there is no space for the first segment.
            InvalidConfig: the config is not a StoreConfig, or its `lanes` differs from the folder's.
        """
        if read_only:
            if repair:
                raise InvalidConfig("a repair changes files, and read_only=True changes none; give one of the two")
            return StoreReader.open(path, config, disk=disk, clock=clock)
        check_arguments(path, config)
        given = (config or StoreConfig(), disk or OsDisk())
        return cls(fixed_path(path), *given, repair=repair, clock=clock or SYSTEM_CLOCK)

    def _make_parts(self, shared: Shared) -> Fetcher:
        fetcher = Fetcher(shared)
        self._appender = Appender(shared, fetcher.configured)
        self._columns = ColumnAppender(
            shared, self._appender.find_or_make, self._appender.make, fetcher.configured.full
        )
        self._windows = IdWindows(
            shared.hidden, fetcher.configured, lambda: fetcher.reader, shared.clock,
            lambda: shared.all_queues, shared.check_open,
        )  # fmt: skip
        self._identified = IdentifiedAppender(shared, self._appender, self._windows)
        self._topics = TopicChanges(shared, fetcher, self._windows)
        return fetcher

    # -- opening and closing --------------------------------------------------------------------------

    def _open(self, repair: bool) -> None:
        disk = self._disk
        header = self._header()
        self._set_lanes(header.lanes)
        config = TunedConfig.of(self.config)
        direct = self._writes_direct(config)
        config = replace(config, block_bytes=self._block_bytes(config, direct=direct))
        self._store_id = header.store_id
        running = self._running
        running.ids = self._windows
        self._flushers = running.flushers
        self._scanned_bytes, self._scan_ms = 0, 0.0
        self._upkeep = running.upkeep = Upkeep(
            disk, self.path, config, header.store_id, self._clock, running.force_lazily, running.mark,
            self._caches.forget_removed, running.lock.is_in_place, running.goes_on, direct=direct,
        )  # fmt: skip
        self._shared.sleepers.add(self._upkeep.wake, self._upkeep.call_lookers)
        maker = LaneMaker(self._shared, config, header.lanes, disk, self._caches, self._upkeep, running)
        was_closed = self._recover_lanes(maker, header, repair=repair, direct=direct)
        self._lanes = [flusher.lane for flusher in running.flushers]
        self._shared.begin_rounds = maker.begin_rounds
        if header.lanes > 1:
            maker.add_rounds()
        if not repair:  # it may have lost what tells
            retire_gone(self._lanes, self._streams)
        self._named_topics = NamedTopics()
        self._set_retention()
        self._tell_counts(self._upkeep)
        self._transacting = TransactionParts(
            self._appender, self._subscriptions(), self._fetcher, self._windows, self._clock
        )
        self._start(repair=repair)
        # A power cut takes the end of each lane: with "os", of one more than of another. A loss may be of any messages.
        if (header.lanes > 1 and not was_closed) or any(loss.offsets_may_repeat for loss in self.losses):
            self._forget_lost()

    def _recover_lanes(self, maker: LaneMaker, header: StoreHeader, *, repair: bool, direct: bool) -> bool:
        """Find all lanes, and make them ready for appends. Whether the store was closed. Raises StoreError, OSError."""
        disk, was_closed, damaged = self._disk, True, set[int]()  # the lanes with losses
        for index in range(header.lanes):
            folder = self.path / lane_name(index)
            if not folder.is_dir():
                if not repair:
                    raise StoreCorrupt("a lane's folder is missing", folder, 0)
                disk.make_folder(folder)
                self.losses.append(Loss(str(folder), 0, 0, None, None, offsets_may_repeat=True))
                damaged.add(index)
            disk.force_folder(folder)  # a name that a killed process has given may not be durable yet
            found = LaneRecovery(
                disk, folder, index, header.store_id, self.path / QUARANTINE, repair=repair, direct=direct,
                damaged=damaged,
            ).run()  # fmt: skip
            maker.add(index, folder, found)
            self.losses += found.losses
            damaged.update([index] if found.losses else [])
            was_closed = was_closed and found.was_closed
            self._scanned_bytes += found.scanned_bytes
            self._scan_ms += found.scan_ms
        return was_closed

    def _set_retention(self) -> None:
        """Tell the parts that retention asks of each other; nothing is removed before `_start`."""
        self._trimming = TrimChanges(
            self._shared, self._fetcher.configured, self._windows, self._caches, self._upkeep, self._waiting
        )
        self._delaying = make_delaying(
            self._shared, self._disk, self._running, self._upkeep, self._caches.plan, self._fetcher.configured
        )
        self._upkeep.removal.guards.insert(0, self._subscriptions().may_go)  # first: what it moves is not copied
        self._upkeep.removal.guards += [self._fetcher.configured.may_go, self._windows.may_go]
        self._fetcher.configured.full.watch(
            self._appender.look_closely, self._delaying.keeping.look_for_refused, self._delaying.keeping.look_now,
            self._subscriptions().holds_most,
        )  # fmt: skip
        self._upkeep.removal.counters.append(self._subscriptions().removed.count)
        begin_aging(
            self._shared, self._upkeep.removal, self._fetcher.configured, self._delaying.delays, self._trimming,
            self._subscriptions(),
        )  # fmt: skip

    def _writes_direct(self, config: TunedConfig) -> bool:
        """Whether the log is written past the page cache. Raises StoreUnusable."""
        if config.direct_io is False or config.durability != "force":
            return False
        if takes_direct(self._disk, self.path / STORE_FILE):
            return True
        if config.direct_io:
            raise StoreUnusable(
                f"the file system of {self.path} takes no O_DIRECT, which direct_io=True insists on; leave that "
                f"setting out (writes are then forced through the page cache), or choose another folder"
            )
        return False

    def _block_bytes(self, config: TunedConfig, *, direct: bool) -> int | None:
        """The size of the blocks that the log is written in; with "os" what is given, None for a lane's own choice."""
        if config.durability == "force" and not direct:
            return BLOCK_BYTES
        if direct and config.block_bytes is None:
            return self._disk.safe_block_bytes(self.path / STORE_FILE)
        return config.block_bytes

    def _enter(self) -> None:
        """Take the folder's lock; make the folder if need be."""
        enter_folder(self._disk, self.path, self._running.lock)

    def _start(self, *, repair: bool) -> None:
        """Take messages from here on."""
        publisher = Publisher(self._disk, self.path, self._store_id, self._upkeep.call_lookers)
        figures = figures_for_watchers(self._running.holder, self._clock.wall_ms)
        self._running.teller = teller = FiguresTeller(self._disk, self.path, figures)
        self._upkeep.lookers += [publisher.provide, self._windows.look, teller.look]
        self._running.live = publisher
        self._upkeep.early.flushers = self._flushers
        self._upkeep.start(self._lanes)
        self._start_caches()
        for flusher in self._flushers:
            flusher.start()
        if self._running.rounds is not None:
            self._running.rounds.start()
        if self._delaying.delays.open():
            self._appender.flush()  # also with durability "os", see `_forget_lost`
        self.losses += begin_attaching(
            self._running, self._shared, self._disk, self._store_id, self._appender, repair=repair
        )
        self._fetcher.configured.full.look_now()  # after it: no append passes a limit
        publisher.begin(self._lanes)  # after it: no other process sees a commit that a crash has left in part
        calls = self._running.calls = WriterCalls(self._disk, self.path, answering(self._running, self._upkeep))
        calls.start()
        self._upkeep.last_error = publisher.error or self._upkeep.last_error

    def _header(self) -> StoreHeader:
        """Which store this is; a new one if it is none yet. Raises InvalidConfig, StoreCorrupt."""
        disk, lanes = self._disk, self.config.lanes
        header = read_header(disk, self.path) or create_store(disk, self.path, lanes or 1)
        if lanes not in (None, header.lanes):
            raise InvalidConfig(
                f"the store in {self.path} has {header.lanes} lanes for good, and the config says {lanes}; leave "
                f"`lanes` out, or make a new store with that number"
            )
        disk.force_folder(self.path)
        return header

    def _start_caches(self) -> None:
        caches = self._caches
        caches.lanes = len(self._lanes)
        if caches.messages is not None or caches.reads is not None:
            self._fetcher.reader = cached_reader(caches)
        if caches.messages is not None and (caches.messages.blocks.capacity_bytes or caches.messages.edges):
            # Where a threshold chooses, what is read from the device lies far apart in the log.
            self._upkeep.without_windows = alone = not caches.messages.config.evicts
            for lane in self._lanes:
                held = [sealed.segment for sealed in lane.view.sealed] + [opened.segment for opened in lane.view.open]
                for segment in held:
                    segment.without_windows = alone
            self._feeder = self._running.feeder = Feeder(caches.messages, self._lanes, caches.give_up)
            self._feeder.start()

    def stats(self) -> Stats:  # type: ignore[override]  # a reader has others
        """Return the store's figures since it was opened, as a plain nested dict, ready for JSON.

        Units are in the names: `_bytes`, `_ms`; all other numbers are counts.
        """
        return cast(Stats, self._figures(None))

    def _figures(self, most_names: int | None) -> dict[str, Any]:
        """The figures, with at most `most_names` topics and subscriptions and no step for others. None: all of them."""
        return {
            "path": str(self.path),
            "durability": self.config.durability,
            "alignment": TunedConfig.of(self.config).alignment,
            "poisoned": str(self._poison) if self._poison is not None else None,
            "streams": len(self._streams) if most_names is None else self._stream_count(),
            **lane_figures(self._lanes, self._upkeep),
            "reads": dict(vars(self._reader.counters)),
            "cache": cache_figures(self._caches, self._feeder),
            "publish_buffer": queue_figures(self._queues),
            "delayed": self._delaying.stats(most_names),
            "subscriptions": {} if self._subscribed is None else self._subscribed.stats(most_names),
            "bulk": bulk_figures(self._running.attacher),
            "recovery": recovery_figures(self._open_ms, self._scan_ms, self._scanned_bytes, self.losses),
        }

    def _stream_count(self) -> int:
        """How many queues there are: counted once, and from then on by the numbers that lanes give; none is taken back
        while the store is open.
        """
        numbered = sum(lane.of_users for lane in self._lanes)
        if self._streams_beside is None:
            self._streams_beside = len(self._streams) - numbered
        return numbered + self._streams_beside

    def _metric_figures(self) -> dict[str, Any]:
        figures = self._figures(MOST_NAMED)
        delayed = self._delaying.count(), len(figures["delayed"])
        figures["named"] = named_figures(self._named_topics.rows(self._streams.topics), self._subscribed, delayed)
        figures["retention"] = retention_figures(self._lanes, self.config, self._clock.wall_ms())
        return figures


StoreReader._writing = frozenset(dir(MessageStore)) - frozenset(dir(StoreReader))
