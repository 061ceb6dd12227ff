"""Which peers are here, and how each is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .lmdb import Lmdb
from .nats import Nats
from .peer import Peer, PeerMissing
from .queues import DiskCache, Huey, LiteQueue, PersistQueue
from .redis import Redis
from .rocksdb import RocksDb
from .sqlite import Sqlite
from .store import Store, StoreByQueue, StoreColumns

OURS: tuple[type[Peer], ...] = (Store, StoreColumns, StoreByQueue)
PEERS: tuple[type[Peer], ...] = (RocksDb, Lmdb, Sqlite, LiteQueue, DiskCache, PersistQueue, Huey, Redis, Nats)
NAMES = tuple(kind.NAME for kind in PEERS)
Opener = Callable[[Path, int], Peer]


@dataclass(frozen=True)
class Found:
    """A peer that is here: its class, its version in words, and what opens it in a folder."""

    kind: type[Peer]
    version: str
    open: Opener


def found(wanted: Collection[str], servers: Mapping[type[Peer], Path | None]) -> tuple[list[Found], list[str]]:
    """This store and the wanted peers that are here; for each one that is not, a sentence that says how to get it."""
    here, missing = [Found(kind, kind.version(), kind) for kind in OURS], []
    for kind in PEERS:
        if kind.NAME not in wanted:
            continue
        server = servers.get(kind)
        given: dict[str, Any] = {} if server is None else {"server": str(server)}
        try:
            here.append(Found(kind, kind.version(**given), partial(kind, **given)))
        except PeerMissing as error:
            missing.append(f"{kind.TITLE} is left out: {error}.")
    return here, missing
