"""Writing shards: bulk data for a store, by a task that need not be in the process that has the store open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..config import MIB, StoreConfig
from ..device.clock import SYSTEM_CLOCK, Clock
from ..device.disk import Disk, OsDisk
from ..device.folder import check_store_folder, fixed_path, read_header
from ..errors import InvalidConfig, InvalidMessage, StoreClosed, StoreUnusable, of_system, shown
from ..format.arrays import Int64s
from ..format.rows import Rows
from ..format.shard import Shard
from ..log.streams import lane_of
from ..shards.staging import incoming_of, remove_staged, staging_name
from ..shards.writer import ShardFile, Streams
from .checks import check_counts
from .column_checks import check_columns
from .stream_table import check_table, name_at

if TYPE_CHECKING:
    from .column_calls import AnyBuffer, BytesColumn

FRAME_BYTES = 4 * MIB
REMOVED = "The shards were removed; write them again."
MANY = 4  # counters for each value, at most
SHARD_BYTES = 1024 * MIB  # a shard that is longer is followed by another one


class ShardWriter:
    """Writes messages for a store into shards, which `commit_shards` makes a part of it.

    The store may be open, in this process or in another one, or not. Its messages have no offsets yet, and no reader
    sees them. Offsets are given when the commit is attached: in the order of the shards given to the commit, and in
    each in the order of its rows. Any number of writers may write for one store at once.

    One thread at a time. In a `with` statement, a shard that was not finished is removed at its end.
    """

    def __init__(
        self, path: str | Path, *, transaction: str = "", partition: int = 0, attempt: int = 0,
        config: StoreConfig | None = None, disk: Disk | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        """Begin a staging folder of its own in the store's folder `incoming`.

        Args:
            path: the store's folder; the store is there.
            transaction, partition, attempt: a part of the folder's name, for people who look into it.
            config: of it, `max_message_bytes` counts.
            disk, clock: as in `MessageStore.open`, for tests.

        Raises:
            StoreUnusable: the folder is no store, or cannot be written to.
            StoreCorrupt: the store's header is damaged.
        """
        if config is not None and not isinstance(config, StoreConfig):
            raise InvalidConfig(f"config is a StoreConfig, not {type(config).__name__}")
        if not isinstance(transaction, str):
            raise InvalidMessage(f"a transaction is a str, not {shown(transaction)}")
        numbers = check_counts(partition=partition, attempt=attempt)
        self._disk = disk or OsDisk()
        self._clock = clock or SYSTEM_CLOCK
        self._store = fixed_path(path)
        self._limit_bytes = (config or StoreConfig()).max_message_bytes
        self._files: list[ShardFile] = []
        self._open: dict[int, ShardFile] = {}  # by lane
        self._table: tuple[object, ...] | None = None  # the one that the names are of
        self._names: dict[int, tuple[str, int]] = {}
        self._done: tuple[Shard, ...] | None = None
        self._is_over = False
        self.rows = self.payload_bytes = 0
        try:
            check_store_folder(self._disk, self._store)
            header = read_header(self._disk, self._store)
            if header is None:
                raise StoreUnusable(f"{self._store} is no store; open it once to make one")
            self._header = header
            self._folder = incoming_of(self._store) / staging_name(transaction, *numbers)
            self._disk.make_folder(self._folder)
        except OSError as error:
            raise StoreUnusable(f"{self._store} cannot take shards: {error.strerror or error}") from error

    def append_columns(
        self,
        streams: Sequence[tuple[str, int]],
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: AnyBuffer,
        keys: BytesColumn | None = None,
        properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> int:
        """Write n messages given as columns; return n. They are not durable before `finish`.

        Args: as for `MessageStore.append_columns`.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: an argument or a row is wrong, and no row is written.
            StoreFull: there is no space for them; the writer is of no use any more.
            StoreUnreadable: the system refused a write for another reason; the writer is of no use any more.
            StoreClosed: the writer is finished, or was aborted.
        """
        self._check_open()
        table = check_table(streams)
        found = check_columns(
            len(table), stream_index, lengths, payload, keys, properties, deliver_at_ms, self._limit_bytes
        )
        names, index = self._names_of(table, found.numbers)
        try:
            for lane, its, rows in self._by_lane(names, found._replace(numbers=index)):
                for part in rows.cut(FRAME_BYTES):  # all have the same list of streams
                    self._file(lane).add(its, part, self._clock.wall_ms())
        except OSError as error:
            self.abort()
            raise of_system(error, self._folder, REMOVED) from error
        self.rows += len(found.lengths)
        self.payload_bytes += found.payload.nbytes
        return len(found.lengths)

    def _names_of(self, table: Sequence[object], index: Int64s) -> tuple[Streams, Int64s]:
        """The names of the streams that have rows, checked, and the place of each row's among them.

        Those of a tuple that comes again and again are checked once, except pairs that may change.
        """
        if table is not self._table:
            self._table, self._names = (table if type(table) is tuple else None), {}
        known, names = self._names, []
        used, places = _numbered(index)
        for at in used.tolist():
            name = known.get(at)
            if name is None:
                name = name_at(table, at, index)
                if type(table[at]) is tuple:
                    known[at] = name
            names.append(name)
        return names, places

    def _by_lane(self, streams: Streams, rows: Rows) -> Iterator[tuple[int, Streams, Rows]]:
        """The lanes that get messages, each with its streams and its rows."""
        lanes = [lane_of(*name, self._header.lanes) for name in streams] if self._header.lanes > 1 else [0]
        if len(set(lanes)) == 1:
            yield lanes[0], streams, rows
            return
        of_row = np.array(lanes, np.int64)[rows.numbers]
        for lane in sorted(set(lanes)):
            mine = rows.take(np.flatnonzero(of_row == lane))
            used, places = _numbered(mine.numbers)
            yield lane, [streams[at] for at in used.tolist()], mine._replace(numbers=places)

    def _file(self, lane: int) -> ShardFile:
        """The shard of a lane that takes rows."""
        file = self._open.get(lane)
        if file is None or file.end >= SHARD_BYTES:
            name = f"{lane:02d}-{len(self._files):06d}"
            file = self._open[lane] = ShardFile(self._disk, self._folder, name, self._header.store_id, lane)
            self._files.append(file)
        return file

    def finish(self) -> tuple[Shard, ...]:
        """Force all that was written; return the shards, in order, for `commit_shards`. It may be called again.

        They can be pickled, so a task hands them to the process that commits. Without a commit they are removed after a
        day by the process that has the store open.

        Raises:
            StoreFull: there is no space for them; the writer is of no use any more.
            StoreUnreadable: a write or force failed for another reason; the writer is of no use any more.
            StoreClosed: the writer was aborted.
        """
        if self._done is None:
            self._check_open()
            try:
                self._done = tuple(file.finish() for file in self._files)
                if self._done:
                    self._disk.force_folder(self._folder)
                else:  # no shard names the folder, so nobody else would remove it
                    remove_staged(self._disk, self._store, [self._folder.name])
            except OSError as error:
                self.abort()
                raise of_system(error, self._folder, REMOVED) from error
        return self._done

    def abort(self) -> None:
        """Remove what was written and not finished. It may be called again."""
        if self._done is None and not self._is_over:
            self._is_over = True
            for file in self._files:
                file.close()
            remove_staged(self._disk, self._store, [self._folder.name])

    def _check_open(self) -> None:
        if self._is_over or self._done is not None:
            raise StoreClosed("the writer of shards is finished; make another one")

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def _numbered(values: Int64s) -> tuple[Int64s, Int64s]:
    """The different ones of some values from 0 on, ascending, and the place of each value among them.

    Counted where they are small: sorting 10,000 values took 30 times as long, and longer than their checksums.
    """
    if len(values) and int(values.max()) > MANY * len(values):
        return np.unique(values, return_inverse=True)
    is_there = np.bincount(values) > 0
    return np.flatnonzero(is_there), (is_there.cumsum() - 1)[values]
