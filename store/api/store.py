"""The public face: open a folder, append, read."""

from __future__ import annotations

import copy
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ..config import StoreConfig
from ..device.clock import SYSTEM_CLOCK, Clock
from ..device.disk import Disk, OsDisk, ReadingDisk, takes_direct
from ..device.folder import (
    QUARANTINE,
    STORE_FILE,
    check_store_folder,
    create_store,
    enter_folder,
    fixed_path,
    read_header,
)
from ..device.forks import forget, watch
from ..device.steps import take_all
from ..errors import InvalidConfig, StoreCorrupt, StoreError, StoreUnusable
from ..format.layout import lane_name
from ..format.store_files import StoreHeader
from ..live.calls import Calls
from ..live.publisher import Publisher
from ..log.gone import retire_gone
from ..log.upkeep import Upkeep
from ..read.cached import cached_reader
from ..read.caches import Caches
from ..read.feeder import Feeder
from ..read.reader import Reader
from ..recovery.lane_recovery import LaneRecovery
from ..recovery.repair import Loss
from .append_calls import AppendCalls
from .appender import Appender
from .column_calls import ColumnCalls
from .columns import ColumnAppender
from .delayed_calls import DelayedCalls, RefusingDelaying, make_delaying
from .fetcher import Fetcher
from .lanes import LaneMaker
from .lifetime import Lifetime
from .read_calls import ReadCalls
from .read_only import Following, RefusingAppender, RefusingTrimming, reading_config, refusal
from .running import Running, end_dropped
from .shard_calls import ShardCalls, begin_attaching
from .shared import Shared
from .stats import bulk_figures, cache_figures, lane_figures, queue_figures, recovery_figures
from .subscription_calls import SubscriptionCalls
from .trim_calls import TrimCalls
from .trimming import Trimming


class MessageStore(
    AppendCalls, ColumnCalls, DelayedCalls, Lifetime, ReadCalls, ShardCalls, SubscriptionCalls, TrimCalls
):
    """An embedded, durable message store in a folder.

    Any number of threads and event loops of one process may use one store object. After `close`, all calls but `close`,
    `closed` and `stats` raise `StoreClosed`. After a failed write or force, appends raise `StorePoisoned`; reads go on.
    """

    # It opens and closes. Its parts, `Appender`, `ColumnAppender`, `Fetcher` and `Trimming`, do the rest; they know
    # nothing of the store. The calls that are passed on to them are in its base classes.

    def __init__(
        self, path: Path, config: StoreConfig | None = None, disk: Disk | None = None, *,
        repair: bool = False, clock: Clock = SYSTEM_CLOCK,
    ) -> None:  # fmt: skip
        """Use `MessageStore.open`."""
        if config is None or disk is None:
            raise TypeError("a store is opened with MessageStore.open(path, config), not made by MessageStore(..)")
        began = time.perf_counter()
        self.path = path
        self.config = config
        self._clock = clock
        self._disk = disk
        self._shared = shared = Shared(path, config, clock)
        self._streams, self._lanes, self._queues = shared.streams, shared.lanes, shared.queues
        self._appender, self._fetcher = self._make_parts(shared)
        self._columns = ColumnAppender(shared, self._appender.find_or_make)
        fetcher = self._fetcher
        self._waiting = fetcher.waiting
        self._feeder: Feeder | None = None
        self._running = running = Running(self, path, fetcher.waiting, fetcher.async_reads, shared.lanes, shared.queues)
        self._flushers = running.flushers
        self.losses: list[Loss] = []
        self._scanned_bytes = 0
        self._scan_ms = 0.0
        end_dropped(path)
        try:
            try:
                self._enter()
                self._caches = running.caches = Caches(config)
                self._open(repair)
                self._open_ms = (time.perf_counter() - began) * 1000
                watch(self)
                running.opened = True
            except OSError as error:
                raise StoreUnusable(f"{path} cannot be used as a store: {error.strerror or error}") from error
        except BaseException:  # it failed, or was interrupted
            running.end()
            raise

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: StoreConfig | None = None,
        *,
        repair: bool = False,
        read_only: bool = False,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> MessageStore:
        """Open the store in a folder. Create it if the folder is new or empty; recover it if it was not closed.

        With `read_only` it is only read, by any number of processes, beside the one that writes or without one. Such a
        store sees exactly what is durable, follows the log as it grows, and changes nothing in the folder. It takes no
        lock, so the folder may be on a read-only mount, or another user's.

        Args:
            path: the folder. It is resolved once: later changes of links and of the working directory have no effect.
            config: the settings; see `StoreConfig`. None takes the defaults.
            repair: True moves on after damage, in place of raising `StoreCorrupt`: damaged ranges are copied to the
                folder `quarantine` and left out. `losses` and `stats()["recovery"]["losses"]` list what was lost.
            read_only: True opens it for reading alone. Calls that append raise `StoreReadOnly`. Of the config, `lanes`
                and `memory_limit_bytes` count.
            disk: another file system, for tests: see `stratalog.store.testing`. None is the system's.
            clock: another clock, for tests. None is the system's.

        Raises:
            StoreLocked: another process, or another store object of this one, has the folder open.
            StoreCorrupt: durable bytes are damaged or missing; the error has file and position.
            StoreUnusable: the folder cannot be a store, the store has another format version, or a cache cannot get its
                memory.
            StoreFull: there is no space for the first segment.
            InvalidConfig: the config is not a StoreConfig, or its `lanes` differs from the folder's.
        """
        if not isinstance(path, str | Path):
            raise StoreUnusable(f"the path of a store is a str or a Path, not {type(path).__name__}")
        if config is not None and not isinstance(config, StoreConfig):
            raise InvalidConfig(f"config is a StoreConfig, not {type(config).__name__}")
        if read_only:
            config = reading_config(config, repair=repair)
            return _ReadOnlyStore(fixed_path(path), config, disk or ReadingDisk(), clock=clock or SYSTEM_CLOCK)
        given = (config or StoreConfig(), disk or OsDisk())
        return cls(fixed_path(path), *given, repair=repair, clock=clock or SYSTEM_CLOCK)

    def _make_parts(self, shared: Shared) -> tuple[Appender, Fetcher]:
        return Appender(shared), Fetcher(shared)

    # -- opening and closing --------------------------------------------------------------------------

    def _open(self, repair: bool) -> None:
        disk = self._disk
        header = self._header()
        self._set_lanes(header.lanes)
        config = self.config
        direct = config.direct_io is not False and config.durability == "force"
        if direct and not takes_direct(disk, self.path / STORE_FILE):
            if config.direct_io:
                raise StoreUnusable(
                    f"the file system of {self.path} takes no O_DIRECT, which direct_io=True insists on; leave that "
                    f"setting out (writes are then forced through the page cache), or choose another folder"
                )
            direct = False
        self._store_id = header.store_id
        running = self._running
        self._upkeep = running.upkeep = Upkeep(
            disk, self.path, config, header.store_id, self._clock, running.force_lazily, running.mark,
            self._caches.forget_removed, running.lock.is_in_place, running.goes_on, direct=direct,
        )  # fmt: skip
        maker = LaneMaker(self._shared, config, header.lanes, disk, self._caches, self._upkeep, running)
        was_closed = True
        for index in range(header.lanes):
            folder = self.path / lane_name(index)
            if not folder.is_dir():
                if not repair:
                    raise StoreCorrupt("a lane's folder is missing", folder, 0)
                disk.make_folder(folder)
                self.losses.append(Loss(str(folder), 0, 0, None, None, offsets_may_repeat=True))
            disk.force_folder(folder)  # a name that a killed process has given may not be durable yet
            found = LaneRecovery(
                disk, folder, index, header.store_id, self.path / QUARANTINE, repair=repair, direct=direct
            ).run()
            maker.add(index, folder, found)
            self.losses += found.losses
            was_closed = was_closed and found.was_closed
            self._scanned_bytes += found.scanned_bytes
            self._scan_ms += found.scan_ms
        if not repair:  # it may have lost what tells
            retire_gone(self._lanes, self._streams)
        self._trimming = Trimming(self._shared, self._caches, self._upkeep, self._waiting)
        self._delaying = make_delaying(self._shared, self._disk, self._running, self._upkeep, self._caches.plan)
        self._upkeep.removal.guards.append(self._subscriptions().may_go)
        self._start(repair=repair)
        # A power cut takes the end of each lane: with "os", of one more than of another. A loss may be of any messages.
        if (header.lanes > 1 and not was_closed) or any(loss.offsets_may_repeat for loss in self.losses):
            self._forget_lost()

    def _set_lanes(self, lanes: int) -> None:
        if self.config.lanes != lanes:  # a copy, not `replace`: a subclass may be made of other arguments
            self.config = copy.copy(self.config)
            object.__setattr__(self.config, "lanes", lanes)

    def _enter(self) -> None:
        """Take the folder's lock; make the folder if need be."""
        enter_folder(self._disk, self.path, self._running.lock)

    def _start(self, *, repair: bool) -> None:
        """From here on messages are taken in."""
        publisher = Publisher(self._disk, self.path, self._store_id, self._upkeep.call_lookers)
        self._upkeep.lookers.append(publisher.look)
        self._running.live = publisher
        self._upkeep.early.flushers = self._flushers
        self._upkeep.start(self._lanes)
        self._start_caches()
        for flusher in self._flushers:
            flusher.start()
        if self._delaying.delays.open():
            self._appender.flush()  # also with durability "os", see `_forget_lost`
        self.losses += begin_attaching(
            self._running, self._shared, self._disk, self._store_id, self._appender, repair=repair
        )
        publisher.begin(self._lanes)  # after it: no other process sees a commit that a crash has left in part
        calls = self._running.calls = Calls(self._disk, self.path, self._upkeep.call_lookers)
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
            self._upkeep.reads_alone = alone = not caches.messages.config.evicts
            for lane in self._lanes:
                held = [sealed.segment for sealed in lane.view.sealed] + [opened.segment for opened in lane.view.open]
                for segment in held:
                    segment.reads_alone = alone
            self._feeder = self._running.feeder = Feeder(caches.messages, self._lanes, caches.give_up)
            self._feeder.start()

    def close(self) -> None:
        """Make all accepted messages durable, and unlock the folder. A second call does nothing.

        It returns when the callbacks of all tickets were called. If such a callback calls it, it does not wait for
        them. If a signal interrupts it, call it again: it continues.
        """
        take_all(
            [self._end_subscriptions, self._shared.close, self._running.end,
             self._running.listeners.join,  # after everything else: a callback may close the store, too
             self._reader.clear, partial(forget, self)]
        )  # fmt: skip

    def __reduce__(self) -> NoReturn:
        """A copy would end the store when it is dropped: there is none, and no pickle."""
        raise TypeError(
            f"{self!r} cannot be copied or pickled; hand its path over, and open it there with read_only=True"
        )

    def __del__(self) -> None:
        """End a store that nobody holds any more, or the rest of an opening or closing that was interrupted."""
        running: Running | None = getattr(self, "_running", None)  # none, if not even the settings were right
        if running is not None and not running.is_over:
            was_open = running.opened and not self._shared.closed
            running.drop()
            if was_open:
                self._warn()

    def _at_exit(self) -> None:
        """The interpreter ends: what was handed over is written, as long as there are threads to do it."""
        was_open = not self._shared.closed
        self.close()
        if was_open:
            self._warn()

    def _warn(self) -> None:
        text = f"the store {self.path} was never closed; call close(), or open it in a `with` statement"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def _after_fork(self) -> None:
        """In a forked child: see `Running.after_fork`."""
        self._shared.closed = True
        self._running.after_fork()
        self._shared.after_fork(self._running.why_closed)

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child. A poisoned store is not closed: its reads go on."""
        return self._shared.closed

    @property
    def _reader(self) -> Reader:
        return self._fetcher.reader

    @property
    def _poison(self) -> StoreError | None:
        return self._running.poison

    def __repr__(self) -> str:
        state = "closed" if self._shared.closed else "poisoned" if self._poison is not None else "open"
        return f"<MessageStore {str(self.path)!r}, {state}>"

    def stats(self) -> dict[str, Any]:
        """Return the store's figures since it was opened, as a plain nested dict, ready for JSON.

        Units are in the names: `_bytes`, `_ms`; all other numbers are counts.
        """
        return {
            "path": str(self.path),
            "durability": self.config.durability,
            "alignment": self.config.alignment,
            "poisoned": str(self._poison) if self._poison is not None else None,
            "streams": len(self._streams),
            **lane_figures(self._lanes, self._upkeep),
            "reads": dict(vars(self._reader.counters)),
            "cache": cache_figures(self._caches, self._feeder),
            "publish_buffer": queue_figures(self._queues),
            "delayed": self._delaying.stats(),
            "subscriptions": {} if self._subscribed is None else self._subscribed.stats(),
            "bulk": bulk_figures(self._running.attacher),
            "recovery": recovery_figures(self._open_ms, self._scan_ms, self._scanned_bytes, self.losses),
        }


class _ReadOnlyStore(MessageStore):
    """A store that another process writes: see `Following`."""

    _fetcher: Following

    def _make_parts(self, shared: Shared) -> tuple[Appender, Following]:
        return RefusingAppender(shared), Following(shared, self._disk)

    def _enter(self) -> None:
        check_store_folder(self._disk, self.path)

    def _open(self, repair: bool) -> None:
        self._trimming = RefusingTrimming(self._shared)
        self._delaying = RefusingDelaying(self._shared, self._disk, refusal(self.path))
        self._running.live = follower = self._fetcher.open(self._caches.held)
        follower.follow()
        self._store_id = self._fetcher.store_id
        self._set_lanes(len(self._lanes))

    def close(self) -> None:
        take_all([super().close, self._fetcher.let_go])

    def stats(self) -> dict[str, Any]:
        return self._fetcher.stats(self._caches.held)
