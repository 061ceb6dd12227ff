"""The stores that a sink writes to: one, or several in a folder with each stream in one of them."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..store import MessageStore, StoreConfig, replace_store
from .errors import BadOption
from .options import STORE_FILE, integer, paths_of

WRITE_OPTIONS = ("path", "transaction", "query", "shards", "lanes", "wait_ms", "checkpointlocation")
MOST_SHARDS = 10_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write.

    Attributes:
        path: the store, or the folder of stores.
        shards: how many stores, or None: one, or as many as there are.
        lanes: of a store that is made; None for one.
        name: of the transaction or the query; None draws one, or takes Spark's.
        wait_ms: how long a commit waits for a process that has the store open.
    """

    path: Path
    shards: int | None
    lanes: int | None
    name: str | None
    wait_ms: int


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a write. Raises BadOption."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(name for name in options if name not in WRITE_OPTIONS)
    if unknown:
        known = ", ".join(WRITE_OPTIONS[:-1])
        raise BadOption(f"there is no option {', '.join(unknown)}; the options of a write are {known}")
    paths = paths_of(options)
    if len(paths) != 1:
        raise BadOption(f"a write has one path, not {len(paths)}; give the folder of one store")
    shards = integer(options, "shards")
    if shards is not None and not 1 <= shards <= MOST_SHARDS:
        raise BadOption(f"the option shards is from 1 to {MOST_SHARDS}, not {shards}")
    wait_ms = integer(options, "wait_ms")
    return SinkOptions(
        Path(os.path.realpath(paths[0])), shards, integer(options, "lanes"),
        options.get("transaction") or options.get("query"), 2_000 if wait_ms is None else wait_ms,
    )  # fmt: skip


def stores_at(options: SinkOptions) -> list[Path]:
    """The stores that a write goes to, which are made if there is nothing. Raises BadOption, StoreError."""
    path, wanted = options.path, options.shards
    found = existing(path)
    if not found:
        if path.exists() and any(path.iterdir()):
            raise BadOption(f"{path} is neither a store nor a folder of stores; give another path")
        fresh = make_stores(options)
        try:
            replace_store(path, fresh)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        found = existing(path)
    if wanted is not None and wanted != len(found):
        raise BadOption(f"{path} has {len(found)} stores for good, and shards is {wanted}; leave that option out")
    return found


def existing(path: Path) -> list[Path]:
    """The store at a path, or those of the folder there, in the order of their numbers."""
    if (path / STORE_FILE).exists():
        return [path]
    return sorted(found.parent for found in path.glob(f"*/{STORE_FILE}")) if path.is_dir() else []


def make_stores(options: SinkOptions) -> Path:
    """New, empty stores beside the path, under a name of their own. Raises StoreError."""
    path = options.path
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(8)}")
    folders = [fresh] if options.shards is None else [fresh / f"shard-{at:04d}" for at in range(options.shards)]
    try:
        for folder in folders:
            MessageStore.open(folder, StoreConfig(lanes=options.lanes)).close()
    except BaseException:  # also an interrupt: a folder half made is no store
        with suppress(OSError):
            shutil.rmtree(fresh)
        raise
    return fresh
