"""The options of reads: strings, as Spark hands them over, become checked values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..store import ScanFilter, StoreError, StoreUnusable
from .errors import BadOption

PART_BYTES = 128 << 20
ON_DAMAGE = ("raise", "skip", "report")
ON_LOST = ("raise", "skip")
STORE_FILE = "STORE"  # a folder that has it is a store
READ_OPTIONS = (
    "path", "paths", "columns", "topic", "queue_id", "start_offset", "end_offset", "start_time", "end_time",
    "partition_bytes", "on_damage",
)  # fmt: skip
STREAM_OPTIONS = ("starting", "max_rows", "max_bytes", "on_lost")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        stores: the folders of the stores.
        wanted: the filter.
        part_bytes: about how much one partition reads.
        on_damage: "raise", "skip" or "report".
        columns: the columns of the schema, or None for all.
    """

    stores: tuple[str, ...]
    wanted: ScanFilter
    part_bytes: int
    on_damage: str
    columns: tuple[str, ...] | None


def check_batch_read(given: Mapping[str, str]) -> None:
    """Raise BadOption for options that a batch read would ignore."""
    for name in given:
        if name.lower() in STREAM_OPTIONS:
            raise BadOption(
                f"the option {name} is of streams alone; a batch read takes start_offset, end_offset, start_time and "
                f"end_time"
            )


def check_schema(options: ReadOptions, names: Sequence[str]) -> None:
    """Raise BadOption for options that a schema of these columns would ignore."""
    reports = options.on_damage == "report"
    # As sets: rows have the columns in the order of the schema, whatever the order of the option.
    if options.columns is not None and set(names) != {*options.columns, *["damage"] * reports}:
        raise BadOption(
            f"the option columns and the schema name other columns: {', '.join(options.columns)}, and "
            f"{', '.join(names)}; give one of the two"
        )
    if reports and "damage" not in names:
        raise BadOption("on_damage=report says what is damaged in a column damage, and the schema has none; add it")


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read, or those that a stream shares with it. Raises BadOption, StoreUnusable."""
    unknown = sorted(name for name in given if name.lower() not in (*READ_OPTIONS, *STREAM_OPTIONS))
    if unknown:
        known = ", ".join(sorted((*READ_OPTIONS, *STREAM_OPTIONS)))
        raise BadOption(f"there is no option {', '.join(unknown)}; the options of a read are {known}")
    options = {name.lower(): value for name, value in given.items()}
    try:
        wanted = ScanFilter(
            topics=listed(options, "topic"),
            queue_ids=_integers(options, "queue_id"),
            start_offset=integer(options, "start_offset") or 0,
            end_offset=integer(options, "end_offset"),
            start_ms=time_ms(options, "start_time"),
            end_ms=time_ms(options, "end_time"),
        )
    except BadOption:
        raise
    except StoreError as error:
        raise BadOption(str(error)) from error
    return ReadOptions(
        tuple(str(path) for path in store_folders(paths_of(options))),
        wanted,
        size_bytes(options, "partition_bytes") or PART_BYTES,
        one_of(options, "on_damage", ON_DAMAGE),
        listed(options, "columns"),
    )


def paths_of(options: Mapping[str, str]) -> list[str]:
    """The paths of `path` and `paths`: one, several with commas between, or a JSON list. Raises BadOption."""
    found: list[str] = []
    for name in ("path", "paths"):
        if options.get(name):
            found += listed(options, name) or ()
    if not found:
        raise BadOption("no path: give the folder of a store, as in load('data') or option('path', 'data')")
    return [path.removeprefix("file://") if path.startswith("file://") else path for path in found]


def store_folders(paths: list[str]) -> list[Path]:
    """The stores in some folders: each folder is one, or has some. Sorted within a folder. Raises StoreUnusable."""
    found: list[Path] = []
    for path in map(Path, paths):
        if (path / STORE_FILE).exists():
            found.append(path.resolve())
            continue
        # A store is still being made while its name begins with a dot.
        inside = sorted(part.parent.resolve() for part in path.glob(f"[!.]*/{STORE_FILE}")) if path.is_dir() else []
        if not inside:
            what = "is not a store, and no folder in it is one" if path.is_dir() else "does not exist"
            raise StoreUnusable(f"{path} {what}; give the folder of a store, or one that has stores in it")
        found += inside
    return found


def listed(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """One value, several with commas between, or a JSON list of strings; None if it is not given, or blank.

    Raises BadOption.
    """
    text = options.get(name)
    if text is None or not text.strip():
        return None
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except ValueError as error:
            raise BadOption(f"the option {name} is no JSON list: {text!r}") from error
        if not isinstance(values, list) or not values or not all(isinstance(value, str | int) for value in values):
            raise BadOption(f"the option {name} is a JSON list of strings, not {text!r}")
        return tuple(str(value) for value in values)
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise BadOption(f"the option {name} has commas alone: {text!r}; give a value, or leave it out")
    return parts


def integer(options: Mapping[str, str], name: str) -> int | None:
    """An integer; None if it is not given."""
    text = options.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"the option {name} is an integer, not {text!r}") from None


def _integers(options: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    texts = listed(options, name)
    return None if texts is None else tuple(integer({name: text}, name) or 0 for text in texts)


def size_bytes(options: Mapping[str, str], name: str) -> int | None:
    """A size: an integer, or one with a unit such as 64m; None if it is not given."""
    text = options.get(name)
    if text is None:
        return None
    number = text.strip().lower().rstrip("ibkmg")
    unit = text.strip().lower()[len(number) :].replace("ib", "b")
    if not number.isdecimal() or unit not in _UNITS or int(number) * _UNITS[unit] <= 0:
        raise BadOption(f"the option {name} is a number of bytes such as 134217728 or 128m, not {text!r}")
    return int(number) * _UNITS[unit]


def time_ms(options: Mapping[str, str], name: str) -> int | None:
    """A time: ms since the epoch, or ISO 8601 (UTC, if it names no zone); None if it is not given."""
    text = options.get(name)
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text.strip())
        return max(0, round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadOption(
            f"the option {name} is ms since the epoch, or a time such as 2026-11-22T10:00:00, not {text!r}"
        ) from None


def one_of(options: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """One of some words; the first if it is not given."""
    text = options.get(name, values[0]).strip().lower()
    if text not in values:
        raise BadOption(f"the option {name} is one of {', '.join(values)}, not {text!r}")
    return text
