"""`stratalog export` and `stratalog import`: messages to and from JSON lines and Parquet files, without Spark.

Parquet has the columns that `stratalog spark export` writes; its times are ms, so none is cut.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from ..store import InvalidMessage, Message, ShardWriter, StoreError
from .appended import lines_of
from .ends import USAGE, complain
from .printed import json_of
from .rows import Defaults, Row, columns_of, groups_of, refused, row_of, row_of_json

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("json", "parquet")
AT_ONCE = 8_192  # rows of a group in a Parquet file
COLUMNS = ("topic", "queue_id", "offset", "timestamp", "deliver_at", "key", "properties", "data", "store")
NEEDS_PYARROW = "Parquet needs pyarrow: pip install pyarrow; or take --format json"


def format_of(given: str | None, file: Path | None) -> str:
    """The format that was given, else the one that the file's name says; JSON lines. Raises typer.BadParameter."""
    if given is None:
        return "parquet" if file is not None and file.suffix == ".parquet" else "json"
    if given not in FORMATS:
        raise typer.BadParameter(f"a format is {' or '.join(FORMATS)}, not {given!r}")
    return given


def parquet() -> Any:
    """The module pyarrow.parquet. Ends the command if there is none."""
    try:
        import pyarrow.parquet  # noqa: PLC0415  # an extra, and 0.1 s of each start
    except ImportError:
        complain(NEEDS_PYARROW)
        raise typer.Exit(USAGE) from None
    return pyarrow.parquet


@contextmanager
def new_file(path: Path | None) -> Iterator[IO[bytes]]:
    """A file that has its name once it is whole; the standard output if None."""
    if path is None:
        yield sys.stdout.buffer
        return
    if path.exists() and not path.is_char_device() and not path.is_fifo():
        raise typer.BadParameter(f"{path} is there already; give the name of a new file")
    if path.exists():
        with path.open("wb") as file:
            yield file
        return
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        with part.open("xb") as file:
            yield file
        part.rename(path)
    finally:
        with suppress(OSError):
            part.unlink()


def write_json_lines(messages: Iterable[Message], file: IO[bytes]) -> int:
    """Write messages as JSON lines; return how many."""
    count = 0
    for message in messages:
        file.write(f"{json_of(message)}\n".encode())
        count += 1
    file.flush()
    return count


def write_parquet(messages: Iterable[Message], file: IO[bytes]) -> int:
    """Write messages as Parquet; return how many."""
    module = parquet()
    schema, each, count = _schema(), iter(messages), 0
    with module.ParquetWriter(file, schema) as writer:
        while rows := list(islice(each, AT_ONCE)):
            try:
                writer.write_batch(_batch(rows, schema))
            except (UnicodeEncodeError, ValueError) as error:  # half a surrogate pair, which a property may have
                raise InvalidMessage(f"Parquet cannot hold a message ({error}); take --format json") from None
            count += len(rows)
    return count


def _schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415  # an extra

    when = pa.timestamp("ms", tz="UTC")
    return pa.schema([
        ("topic", pa.string()), ("queue_id", pa.int32()), ("offset", pa.int64()), ("timestamp", when),
        ("deliver_at", when), ("key", pa.binary()), ("properties", pa.map_(pa.string(), pa.string())),
        ("data", pa.binary()),
    ])  # fmt: skip


def _batch(rows: list[Message], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415  # an extra

    whole = pa.int64()
    columns: list[Any] = [
        pa.array([row.topic for row in rows], pa.string()),
        pa.array([row.queue_id for row in rows], pa.int32()),
        pa.array([row.offset for row in rows], whole),
        pa.array([row.timestamp_ms for row in rows], whole).cast(schema.field("timestamp").type),
        pa.array([row.deliver_at_ms for row in rows], whole).cast(schema.field("deliver_at").type),
        pa.array([row.key for row in rows], pa.binary()),
        pa.array(
            [None if row.properties is None else list(row.properties.items()) for row in rows],
            schema.field("properties").type,
        ),
        pa.array([bytes(row.data) for row in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of_json_lines(file: IO[bytes], defaults: Defaults) -> Iterator[Row]:
    """The rows of a file of JSON lines. Raises InvalidMessage."""
    number, now_ms = 0, time.time_ns() // 1_000_000
    for lines in lines_of(file):  # type: ignore[arg-type]  # a BufferedReader
        for line in lines:
            number += 1
            if line.strip():
                yield row_of_json(number, line, defaults, now_ms)


def rows_of_parquet(path: Path, defaults: Defaults) -> Iterator[Row]:
    """The rows of a Parquet file. Raises InvalidMessage."""
    module = parquet()
    import pyarrow as pa  # noqa: PLC0415  # an extra

    number, now_ms = 0, time.time_ns() // 1_000_000
    try:
        with module.ParquetFile(path) as file:
            for name in file.schema_arrow.names:
                if name not in COLUMNS:
                    raise InvalidMessage(
                        f"there is no column {name!r} of messages; the columns are {', '.join(COLUMNS)}"
                    )
            for batch in file.iter_batches(AT_ONCE):
                for fields in _fields_of(batch, pa):
                    number += 1
                    try:
                        yield row_of(number, fields, defaults, now_ms)
                    except InvalidMessage as error:
                        raise InvalidMessage(f"row {number}: {error}") from None
    except pa.ArrowException as error:
        raise InvalidMessage(f"it is no Parquet file of messages: {error}") from None


def _fields_of(batch: pa.RecordBatch, pa: Any) -> Iterator[dict[str, Any]]:
    """The fields of each row, by the names of JSON lines. Columns that the store gives itself are left out."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "deliver_at":
            times = column
            if pa.types.is_timestamp(column.type):  # whole ms, toward the past
                times = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
            columns["deliver_at_ms"] = times.cast(pa.int64()).to_pylist()
        elif name == "properties":
            columns[name] = [None if row is None else dict(row) for row in column.to_pylist()]
        elif name in ("topic", "queue_id", "key", "data"):
            columns[name] = column.to_pylist()
    for values in zip(*columns.values(), strict=True):
        yield {name: value for name, value in zip(columns, values, strict=True) if value is not None}


def stage(writer: ShardWriter, rows: Iterable[Row], *, what: str) -> None:
    """Write rows to shards. Raises typer.Exit, InvalidMessage."""
    for group in groups_of(rows):
        try:
            writer.append_columns(*columns_of(group))
        except StoreError as error:
            raise refused(error, group, 0, what=what) from error


def result(figures: dict[str, Any], sentence: str, to: Path | None) -> None:
    """Say what a command has done: a sentence, or JSON."""
    if to is None:
        typer.echo(sentence)
    else:
        text = json.dumps(figures) + "\n"
        sys.stdout.write(text) if str(to) == "-" else to.write_text(text)
