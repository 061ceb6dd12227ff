"""The stores that a sink writes to: one, or several in a folder, with each stream in one of them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..store import (
    MessageStore,
    StoreConfig,
    StoreUnusable,
    check_replaceable,
    note_shards,
    noted_shards,
    put_store,
)
from .errors import BadOption
from .options import STORE_FILE, integer, paths_of

WRITE_OPTIONS = (
    "path", "transaction", "query", "shards", "lanes", "max_message_bytes", "wait_ms", "checkpointlocation",
)  # fmt: skip
MOST_SHARDS = 10_000
MOST_LANES = 64
MOST_WAIT_MS = 86_400_000
MOST_NAME_BYTES = 255
LEFT_OVER_S = 24 * 3600.0
SHARD = "shard-"  # the name of a store in a folder, with its number after it
_SHARD_NAME = re.compile(rf"{SHARD}\d{{4}}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write.

    Attributes:
        path: the store, or the folder of stores.
        shards: the number of stores; None: one, or as many as exist.
        lanes: of a store that is made; None for one.
        name: of the transaction or the query; None draws one, or takes Spark's.
        wait_ms: how long a commit waits for a process that has the store open.
        config: the settings of the tasks' writers.
    """

    path: Path
    shards: int | None
    lanes: int | None
    name: str | None
    wait_ms: int
    config: StoreConfig


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
    path = Path(os.path.realpath(paths[0]))
    around = next((parent for parent in path.parents if (parent / STORE_FILE).exists()), None)
    if around is not None:
        raise BadOption(f"{path} lies inside the store {around}; give a path outside of it")
    wait_ms = _between(options, "wait_ms", 0, MOST_WAIT_MS)
    most_bytes = integer(options, "max_message_bytes")
    return SinkOptions(
        path, _between(options, "shards", 1, MOST_SHARDS), _between(options, "lanes", 1, MOST_LANES),
        _name(options), 2_000 if wait_ms is None else wait_ms,
        StoreConfig() if most_bytes is None else StoreConfig(max_message_bytes=most_bytes),
    )  # fmt: skip


def _between(options: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    value = integer(options, name)
    if value is not None and not low <= value <= high:
        raise BadOption(f"the option {name} is from {low} to {high}, not {value}")
    return value


def _name(options: Mapping[str, str]) -> str | None:
    """The name of a transaction or of a query. Not a blank one: its write could be done twice."""
    given = [name for name in ("transaction", "query") if name in options]
    if len(given) > 1:
        raise BadOption("a write has a transaction, a stream has a query; give one of the two options")
    for name in given:
        text = options[name]
        if not text.strip() or len(text.encode()) > MOST_NAME_BYTES:
            raise BadOption(f"the option {name} is a name of 1 to {MOST_NAME_BYTES} bytes, not {text[:300]!r}")
        return text
    return None


def stores_at(options: SinkOptions) -> list[Path]:
    """The stores of a write, which are made if there are none. Raises BadOption, StoreError."""
    path, wanted = options.path, options.shards
    found = existing(path)
    if not found:
        _check_complete(path, found)  # all of them may be gone
        _check_free(path)
        fresh = make_stores(options)
        try:
            put_store(path, fresh)  # or another driver has done so
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        found = existing(path)
        if not found:
            _check_free(path)
    if found != [path]:  # a single store may have any name
        _check_complete(path, found)
    for store in found:
        if not os.access(store, os.W_OK):  # else each task finds it out, in each of its tries
            raise StoreUnusable(f"{store} cannot be written to; mount it for writing, or give another path")
    if wanted is not None and wanted != len(found):
        raise BadOption(f"{path} has {len(found)} stores for good, and shards is {wanted}; leave that option out")
    _check_lanes(found, options.lanes)
    return found


def _check_lanes(found: list[Path], wanted: int | None) -> None:
    """Raise BadOption if existing stores have another number of lanes. They are not opened for that."""
    for store in found if wanted is not None else ():
        lanes = sum(one.is_dir() for one in store.glob("lane-*"))
        if lanes != wanted:
            raise BadOption(f"{store} has {lanes} lanes for good, and lanes is {wanted}; leave that option out")


def _check_complete(path: Path, found: list[Path]) -> None:
    """Raise BadOption if one of the stores of a folder is gone: each queue's store follows from their number.

    In a folder that was made before the number was noted, a loss of the last stores is not seen.
    """
    there = {store.name for store in found}
    count = noted_shards(path)
    if count is None:
        count = max((int(name[len(SHARD) :]) + 1 for name in there if _SHARD_NAME.fullmatch(name)), default=0)
    names = {f"{SHARD}{number:04d}" for number in range(count)}
    for missing in sorted(names - there):
        raise BadOption(
            f"{path} is a folder of {count} stores, and {missing} is not there; put it back, or queues would be in "
            f"other stores than before"
        )
    for stranger in sorted(there - names) if names else ():
        raise BadOption(f"{path} is a folder of {count} stores, and {stranger} is none of them; move it away")


def _check_free(path: Path) -> None:
    """Raise BadOption if something exists where a new store would be made."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadOption(f"{path} is neither a store nor a folder of stores; give another path")


def stores_in_place_of(options: SinkOptions) -> Path:
    """Make new stores beside the path, to take its place. Raises BadOption, StoreError.

    Leftovers of killed drivers are removed, if they are older than a day.
    """
    check_replaceable(options.path)
    for left in options.path.parent.glob(f".{options.path.name}.new-*"):
        if time.time() - _touched(left) > LEFT_OVER_S:
            shutil.rmtree(left, ignore_errors=True)
    return make_stores(options)


def _touched(folder: Path) -> float:
    """When something was last added to stores that are still being made."""
    times = []
    for one in (folder, *folder.glob("incoming/*"), *folder.glob("*/incoming/*")):
        with suppress(OSError):  # its task has removed it meanwhile
            times.append(one.stat().st_mtime)
    return max(times, default=0.0)


def existing(path: Path) -> list[Path]:
    """The store at a path, or those in the folder there, in the order of their numbers."""
    if (path / STORE_FILE).exists():
        return [path]
    return sorted(found.parent for found in path.glob(f"*/{STORE_FILE}")) if path.is_dir() else []


def make_stores(options: SinkOptions) -> Path:
    """Make new, empty stores beside the path, under a name of their own. Raises StoreError."""
    path = options.path
    fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadOption(f"no store can be made at {path}: {error.strerror}; give another path") from error
    folders = [fresh] if options.shards is None else [fresh / f"{SHARD}{at:04d}" for at in range(options.shards)]
    try:
        for folder in folders:
            MessageStore.open(folder, StoreConfig(lanes=options.lanes)).close()
        if options.shards is not None:
            note_shards(fresh, options.shards)
    except BaseException:  # also an interrupt: a half-made folder is no store
        with suppress(OSError):
            shutil.rmtree(fresh)
        raise
    return fresh
