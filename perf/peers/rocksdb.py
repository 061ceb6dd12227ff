"""RocksDB, by the package rocksdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from .peer import (
    APPEND,
    BATCH,
    CHUNK,
    GROUPED,
    KEY,
    PIPELINED,
    QUEUE_BYTES,
    RANGES,
    RECOVERY,
    SCAN,
    Chunk,
    Peer,
    Row,
    load,
    pairs_of,
)  # fmt: skip

RECYCLED_LOGS = 4
WARM_LOGS = 2
CACHE_BYTES = 512 << 20  # all messages of a chapter, unless its options ask for more
WARM_QUEUE = 0xFFFF_FFFF  # its keys come after those of all queues
WARM_VALUE_BYTES = 1 << 20


class RocksDb(Peer):
    """RocksDB with forced writes, and the options of its page "Setup Options and Basic Tuning" that are not defaults.

    Of what the page advises is not taken: compression, since the values are random bytes; a Bloom filter, since
    nothing asks for single keys; a third of the memory for the block cache, since CACHE_BYTES hold all that is read.
    `compaction_pri` has no call in the package, and is kMinOverlappingRatio by default, as the page advises.
    """

    NAME: ClassVar[str] = "rocksdb"
    TITLE: ClassVar[str] = "RocksDB"
    PACKAGE: ClassVar[str] = "rocksdict"
    SETUP: ClassVar[str] = (
        "WriteOptions.sync; no compression, since the values are random bytes; log files are recycled, and written "
        "once before the clock starts, so that a force changes no metadata; levels by dynamic size, six background "
        "jobs, files forced step by step, blocks of 16 KiB, a block cache of 512 MiB that has index and filters too. "
        "It numbers nothing: the caller makes the keys. Its Python package holds the interpreter's lock through a force"
    )
    MANUAL: ClassVar[str] = "https://github.com/facebook/rocksdb/wiki/Setup-Options-and-Basic-Tuning"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, GROUPED, PIPELINED, BATCH, RANGES, SCAN, RECOVERY})
    LACKS: ClassVar[str] = "RocksDB and LMDB have no queue of jobs"

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        self._module = module = load("rocksdict")
        options = module.Options(raw_mode=True)
        options.set_compression_type(module.DBCompressionType.none())
        options.set_recycle_log_file_num(RECYCLED_LOGS)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_max_background_jobs(6)
        options.set_bytes_per_sync(1 << 20)
        tables = module.BlockBasedOptions()
        tables.set_block_cache(module.Cache(CACHE_BYTES))
        tables.set_block_size(16 << 10)
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_format_version(6)
        options.set_block_based_table_factory(tables)
        self._db = module.Rdict(str(folder), options)
        self._forced = module.WriteOptions()
        self._forced.sync = True
        self._warm_up(prepare_bytes)

    def _warm_up(self, size_bytes: int) -> None:
        """Fill and empty WARM_LOGS log files of about that size: the next ones are written over these."""
        value = bytes(WARM_VALUE_BYTES)
        for number in range(WARM_LOGS if size_bytes else 0):
            for first in range(0, size_bytes, WARM_VALUE_BYTES):
                self.append((WARM_QUEUE, number, value[: size_bytes - first]))
            self._db.flush()

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def append(self, row: Row) -> None:
        """One forced write."""
        queue, number, data = row
        self._db.put(KEY.pack(queue, number), data, self._forced)

    def batch_of(self, rows: Sequence[Row]) -> Any:
        """Keys and values."""
        return pairs_of(rows)

    def append_batch(self, batch: Any) -> None:
        """One forced write batch."""
        made = self._module.WriteBatch(raw_mode=True)
        put = made.put
        for key, value in batch:
            put(key, value)
        self._db.write(made, self._forced)

    def read(self, queue: int, number: int, count: int) -> Collection[bytes]:
        """The values of keys that follow each other."""
        begin = KEY.pack(queue, number)
        found = list(islice(self._db.items(from_key=begin), count))
        while found and found[-1][0][:QUEUE_BYTES] != begin[:QUEUE_BYTES]:
            found.pop()
        return [value for _, value in found]

    def read_all(self) -> Iterator[Chunk]:
        """All values in the order of their keys, without those of the warm-up."""
        warm = KEY.pack(WARM_QUEUE, 0)[:QUEUE_BYTES]
        pairs = iter(self._db.items())
        while chunk := list(islice(pairs, CHUNK)):
            yield [value for key, value in chunk if key[:QUEUE_BYTES] != warm]
