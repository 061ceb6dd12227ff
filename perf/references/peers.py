"""RocksDB and LMDB, set up as their manuals advise for this work. Optional: the dependency group "peers"."""

from __future__ import annotations

import importlib
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..workload.checker import WrongResult

KEY = struct.Struct(">IQ")  # queue, offset: the keys of a queue follow each other
QUEUE_BYTES = 4
LMDB_MAP_BYTES = 64 << 30
RECYCLED_LOGS = 4
WARM_QUEUE = 0xFFFF_FFFF  # its keys come after those of all queues
WARM_VALUE_BYTES = 1 << 20

Items = Sequence[tuple[bytes, bytes]]


class PeerMissing(RuntimeError):
    """The peer's package is not installed."""


def load(module: str) -> Any:
    """The peer's module. Raises PeerMissing, which says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissing(f'{module} is not installed: pip install ".[peers]" in a checkout') from error


class RocksDb:
    """RocksDB with forced write batches.

    No compression, since the values are random bytes; log files are recycled, so that a force changes no metadata of
    the file (`Options::recycle_log_file_num`); levels grow from the last one, two background jobs, files forced step
    by step (the wiki's "Setup Options and Basic Tuning").
    """

    SETUP = "RocksDB: sync, no compression, recycled logs, logs written once before the clock starts"

    def __init__(self, folder: Path) -> None:
        self._module = load("rocksdict")
        options = self._module.Options(raw_mode=True)
        options.set_compression_type(self._module.DBCompressionType.none())
        options.set_recycle_log_file_num(RECYCLED_LOGS)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_max_background_jobs(2)
        options.set_bytes_per_sync(1 << 20)
        self._db = self._module.Rdict(str(folder), options)
        self._forced = self._module.WriteOptions()
        self._forced.sync = True

    def warm_up(self, size_bytes: int) -> None:
        """Fill and empty two log files of about that size: the next ones are written over these."""
        value = bytes(WARM_VALUE_BYTES)
        for number in range(2):
            for first in range(0, size_bytes, WARM_VALUE_BYTES):
                self.write([(KEY.pack(WARM_QUEUE, number), value[: size_bytes - first])])
            self._db.flush()

    def write(self, items: Items) -> None:
        """One write batch, forced."""
        batch = self._module.WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in items:
            put(key, value)
        self._db.write(batch, self._forced)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All pairs written after the warm-up, ordered by key."""
        for key, value in self._db.items():
            if not key.startswith(KEY.pack(WARM_QUEUE, 0)[:QUEUE_BYTES]):
                yield key, value

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def seconds_of_rocksdb(folder: Path, pairs: Items, batch_messages: int, payload_bytes: int) -> float:
    """Seconds of forced write batches of these pairs. Raises WrongResult if the database does not hold them then."""
    cuts = [pairs[first : first + batch_messages] for first in range(0, len(pairs), batch_messages)]
    database = RocksDb(folder)
    try:
        database.warm_up(payload_bytes)
        began = time.perf_counter()
        for items in cuts:
            database.write(items)
        seconds = time.perf_counter() - began
        if list(database.items()) != sorted(pairs):
            raise WrongResult("RocksDB does not hold what was written")
    finally:
        database.close()
    return seconds


class Lmdb:
    """LMDB with the same keys; only its reads are measured, so nothing forces its writes.

    A call of `get_range` is one read transaction; the cursor makes no key objects. `readahead` is the kernel's: the
    manual advises to turn it off for random reads of a database larger than memory.
    """

    SETUP = "LMDB: one read transaction a call, values without keys, values copied out"

    def __init__(self, folder: Path, *, readahead: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._env = load("lmdb").open(
            str(folder), map_size=LMDB_MAP_BYTES, sync=False, metasync=False, readahead=readahead
        )

    def write(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """One transaction."""
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(items)

    def get_range(self, queue: int, offset: int, fetch_messages: int) -> list[bytes]:
        """Up to `fetch_messages` values of one queue, copied out."""
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(KEY.pack(queue, offset)):
                return []
            found = list(islice(cursor.iternext(keys=False), fetch_messages))
            # The cursor is on the last value, or after the last of all: one key tells whether the queue ended.
            last = cursor.key()
            if len(found) == fetch_messages and last[:QUEUE_BYTES] == KEY.pack(queue, 0)[:QUEUE_BYTES]:
                return found
            return self._cut(cursor, queue, offset, fetch_messages)

    @staticmethod
    def _cut(cursor: Any, queue: int, offset: int, fetch_messages: int) -> list[bytes]:
        """`get_range` for a queue with fewer values: its keys are compared."""
        cursor.set_range(KEY.pack(queue, offset))
        found, prefix = [], KEY.pack(queue, 0)[:QUEUE_BYTES]
        for key, value in islice(cursor.iternext(), fetch_messages):
            if key[:QUEUE_BYTES] != prefix:
                break
            found.append(value)
        return found

    def flush(self) -> None:
        """Force everything to the device."""
        self._env.sync(True)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
