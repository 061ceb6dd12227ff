"""Other engines to measure beside, in the same run: RocksDB and LMDB. Optional: the dependency group
"peers"."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

KEY = struct.Struct(">IQ")
LMDB_MAP_BYTES = 64 << 30


class PeerMissing(RuntimeError):
    """The peer's package is not installed."""


def load(module: str) -> Any:
    """The peer's module; a PeerMissing with what to do when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissing(f'{module} is not installed: pip install "stratalog[peers]"') from error


class RocksDb:
    """RocksDB through rocksdict; keys are queue (4 B big-endian) + offset (8 B big-endian)."""

    def __init__(self, folder: Path) -> None:
        self._module = load("rocksdict")
        self._db = self._module.Rdict(str(folder), self._module.Options(raw_mode=True))
        self._options = self._module.WriteOptions()
        self._options.sync = True

    def write(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        """One write batch, forced (sync)."""
        batch = self._module.WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in items:
            put(key, value)
        self._db.write(batch, self._options)

    def close(self) -> None:
        """Closes the database."""
        self._db.close()


class Lmdb:
    """LMDB; the same keys, so that a queue's messages lie next to each other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._env = load("lmdb").open(str(folder), map_size=LMDB_MAP_BYTES, sync=False, metasync=False)

    def write(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        """One transaction; not forced, since only reads are measured here."""
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(items)

    def get_range(self, queue: int, offset: int, fetch_messages: int) -> list[bytes]:
        """Up to `fetch_messages` values of one queue, copied out, in one read transaction."""
        prefix = KEY.pack(queue, 0)[:4]
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(KEY.pack(queue, offset)):
                return []
            found = list(islice(cursor.iternext(keys=True, values=True), fetch_messages))
        if found and found[-1][0][:4] != prefix:
            found = [pair for pair in found if pair[0][:4] == prefix]
        return [value for _, value in found]

    def flush(self) -> None:
        """Forces everything to the device."""
        self._env.sync(True)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
