"""A store that is read: what `MessageStore.open(path, read_only=True)` gives; one that writes is it as well."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..config import StoreConfig
from ..device.clock import SYSTEM_CLOCK, Clock
from ..device.disk import Disk, ReadingDisk
from ..device.folder import check_store_folder, fixed_path
from ..device.forks import forget, watch
from ..device.steps import take_all
from ..errors import InvalidConfig, StoreError, StoreReadOnly, StoreUnusable
from ..log.lane import Lane
from ..metrics.catalogue import families
from ..metrics.family import MetricFamily
from ..metrics.text import text_of
from ..read.caches import Caches
from ..read.reader import Reader
from ..recovery.repair import Loss
from .async_calls import ReadingForCoroutines
from .delayed_calls import DelayChanges, RefusingDelaying
from .fetcher import Fetcher
from .figures import ReaderStats
from .lifetime import Lifetime
from .read_calls import ReadCalls
from .read_only import FollowedStore, reading_config, refusal
from .running import OpenStore, end_dropped
from .shared import Shared
from .subscription_list import SubscriptionList


class _WritingCall(StoreReadOnly, AttributeError):
    """A call that changes a store, where it is only read. So `hasattr` says that there is none."""


class StoreReader(Lifetime, ReadCalls, ReadingForCoroutines, SubscriptionList):
    """A store that another process may write, opened for reading. `MessageStore` is one that writes as well.

    It sees exactly what is durable, follows the log as it grows, and changes nothing in the folder. Any number of
    processes may read a store, beside the one that writes or without one. Any number of threads and event loops may use
    one object. After `close`, all calls but `close`, `closed` and `stats` raise `StoreClosed`.
    """

    # It opens and closes. Its parts do the rest; they know nothing of the store. The calls that are passed on to them
    # are in its base classes.

    _name: ClassVar[str] = "StoreReader"
    _writing: ClassVar[frozenset[str]] = frozenset()  # the names of the calls that a `MessageStore` has beside these

    def __init__(
        self, path: Path, config: StoreConfig | None = None, disk: Disk | None = None, *,
        repair: bool = False, clock: Clock = SYSTEM_CLOCK,
    ) -> None:  # fmt: skip
        """Use `open`."""
        if config is None or disk is None:
            raise TypeError(f"a store is opened with {self._name}.open(path, config), not made by {self._name}(..)")
        began = time.perf_counter()
        self.path = path
        self.config = config
        self._clock = clock
        self._disk = disk
        self._shared = shared = Shared(path, config, clock)
        self._streams, self._queues = shared.streams, shared.queues
        self._lanes: Sequence[Lane] = shared.lanes
        fetcher = self._fetcher = self._make_parts(shared)
        self._waiting = fetcher.waiting
        self._delaying: DelayChanges
        self._running = running = OpenStore(
            self, path, fetcher.waiting, fetcher.async_reads, shared.lanes, shared.queues
        )
        self.losses: list[Loss] = []
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
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> StoreReader:
        """Open the store in a folder for reading. It takes no lock, so the folder may be on a read-only mount, or
        another user's.

        Args:
            path: the folder. It is resolved once: later changes of links and of the working directory have no effect.
            config: of it, `lanes` and `memory_limit_bytes` count. None takes the defaults.
            disk: another file system, for tests: see `stratalog.testing`. None is the system's.
            clock: another clock, for tests. None is the system's.

        Raises:
            StoreCorrupt: durable bytes are damaged or missing; the error has file and position.
            StoreUnusable: the folder is no store, or one of another format version.
            InvalidConfig: the config is not a StoreConfig, or its `lanes` differs from the folder's.
        """
        check_arguments(path, config)
        return OnlyReader(fixed_path(path), reading_config(config), disk or ReadingDisk(), clock=clock or SYSTEM_CLOCK)

    def _make_parts(self, shared: Shared) -> Fetcher:
        return FollowedStore(shared, self._disk)

    def _enter(self) -> None:
        check_store_folder(self._disk, self.path)

    def _open(self, repair: bool) -> None:
        fetcher = self._fetcher
        assert isinstance(fetcher, FollowedStore), "see `_make_parts`"
        self._delaying = RefusingDelaying(self._shared, self._disk, refusal(self.path))
        self._running.live = follower = fetcher.open(self._caches.held)
        follower.follow()
        self._store_id = fetcher.store_id
        self._set_lanes(len(self._lanes))

    def _set_lanes(self, lanes: int) -> None:
        if self.config.lanes != lanes:  # a copy, not `replace`: a subclass may be made of other arguments
            self.config = copy.copy(self.config)
            object.__setattr__(self.config, "lanes", lanes)

    def close(self) -> None:
        """Make all accepted messages durable, and unlock the folder. A second call does nothing.

        It returns when the callbacks of all tickets were called. If such a callback calls it, it does not wait for
        them. If a signal interrupts it, call it again: it continues.
        """
        take_all(
            [self._end_subscriptions, self._shared.close, self._running.end,
             self._running.listeners.join,  # after everything else: a callback may close the store, too
             self._reader.clear, partial(forget, self), self._fetcher.let_go]
        )  # fmt: skip

    def __reduce__(self) -> NoReturn:
        """A copy would end the store when it is dropped: there is none, and no pickle."""
        raise TypeError(
            f"{self!r} cannot be copied or pickled; hand its path over, and open it there with read_only=True"
        )

    def __del__(self) -> None:
        """End a store that nobody holds any more, or the rest of an opening or closing that was interrupted."""
        running: OpenStore | None = getattr(self, "_running", None)  # none, if not even the settings were right
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
        """In a forked child: see `OpenStore.after_fork`."""
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
        return f"<{self._name} {str(self.path)!r}, {state}>"

    def stats(self) -> ReaderStats:
        """Return the reader's figures since it was opened, as a plain nested dict, ready for JSON.

        Units are in the names: `_bytes`, `_ms`; all other numbers are counts.
        """
        fetcher = self._fetcher
        assert isinstance(fetcher, FollowedStore), "see `_make_parts`"
        return fetcher.stats(self._caches.held)

    def metrics(self) -> str:
        """Return the store's figures as Prometheus reads them: its text format, version 0.0.4, for GET /metrics.

        They are those of `stats()`, with the unit last in their names: `stratalog_written_bytes_total`. A counter grows
        from the opening on. Values with a topic's or a subscription's name are there for the 100 that were known first,
        and for 1,024 queues of them at the most; `stratalog_left_out` says how many have none. A call costs some ms,
        however many topics there are: make it each second, if you like. The first ones after an opening read the
        records of subscriptions, and may cost tens of ms each if those are large.

        A store that is only read has few of them: those of its own reads, and what it knows of the log.

        Raises: StoreClosed.
        """
        return text_of(self._families())

    def _families(self) -> list[MetricFamily]:
        self._shared.check_open()
        return list(families(self._metric_figures()))

    def _metric_figures(self) -> dict[str, Any]:
        return dict(self.stats())


class OnlyReader(StoreReader):
    """A `StoreReader` that says why a call that writes is not there.

    A class of its own: where a class has a `__getattr__`, each look at an attribute costs more, also of the calls that
    a `MessageStore` makes a million times.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in self._writing:  # also when it is closed: `hasattr` is to say no
                raise _WritingCall(*refusal(self.path).args)
            raise AttributeError(f"'StoreReader' object has no attribute {name!r}", name=name, obj=self)


def check_arguments(path: object, config: object) -> None:
    """Raises StoreUnusable, InvalidConfig for what no folder and no settings are."""
    if not isinstance(path, str | Path):
        raise StoreUnusable(f"the path of a store is a str or a Path, not {type(path).__name__}")
    if config is not None and not isinstance(config, StoreConfig):
        raise InvalidConfig(f"config is a StoreConfig, not {type(config).__name__}")
