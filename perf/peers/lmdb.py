"""LMDB, by the package lmdb."""

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

MAP_BYTES = 64 << 30


class Lmdb(Peer):
    """LMDB with forced commits. A read is one transaction; its cursor makes no key objects."""

    NAME: ClassVar[str] = "lmdb"
    TITLE: ClassVar[str] = "LMDB"
    PACKAGE: ClassVar[str] = "lmdb"
    SETUP: ClassVar[str] = (
        "sync=True, metasync=True, the defaults: a commit is forced; map_size 64 GiB; values without keys, copied out. "
        "It keeps no checksums, and numbers nothing: the caller makes the keys. One writer at a time"
    )
    MANUAL: ClassVar[str] = "https://lmdb.readthedocs.io/en/release/"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, GROUPED, PIPELINED, BATCH, RANGES, SCAN, RECOVERY})

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        self._env = load("lmdb").open(str(folder), map_size=MAP_BYTES)

    @classmethod
    def version(cls) -> str:
        """The library's and the package's version."""
        return f"{'.'.join(map(str, load('lmdb').version()))} in {super().version()}"

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def append(self, row: Row) -> None:
        """One transaction."""
        queue, number, data = row
        with self._env.begin(write=True) as transaction:
            transaction.put(KEY.pack(queue, number), data)

    def batch_of(self, rows: Sequence[Row]) -> Any:
        """Keys and values."""
        return pairs_of(rows)

    def append_batch(self, batch: Any) -> None:
        """One transaction."""
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(batch)

    def read(self, queue: int, number: int, count: int) -> Collection[bytes]:
        """The values of keys that follow each other."""
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(KEY.pack(queue, number)):
                return []
            found = list(islice(cursor.iternext(keys=False), count))
            # The cursor is on the last value, or after the last of all: one key tells whether the queue ended.
            last = cursor.key()
            if len(found) == count and last[:QUEUE_BYTES] == KEY.pack(queue, 0)[:QUEUE_BYTES]:
                return found
            return self._cut(cursor, queue, number, count)

    @staticmethod
    def _cut(cursor: Any, queue: int, number: int, count: int) -> list[bytes]:
        """`read` of a queue with fewer values: its keys are compared."""
        cursor.set_range(KEY.pack(queue, number))
        found, prefix = [], KEY.pack(queue, 0)[:QUEUE_BYTES]
        for key, value in islice(cursor.iternext(), count):
            if key[:QUEUE_BYTES] != prefix:
                break
            found.append(value)
        return found

    def read_all(self) -> Iterator[Chunk]:
        """All values in the order of their keys, copied out: a view would leave most of a long value unread."""
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            values = cursor.iternext(keys=False)
            while chunk := list(islice(values, CHUNK)):
                yield chunk
