"""The columns of the data source, by their names in Spark and in Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import BadOption

Int64s = npt.NDArray[np.int64]

TYPES = {
    "topic": "string",
    "queue_id": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "deliver_at": "timestamp",
    "key": "binary",
    "properties": "map<string,string>",
    "data": "binary",
    "store": "string",
}
DAMAGE = "damage"  # a column of reads that report damage: None for a message, else the damage and its place
# The start of 9999-12-31, UTC: rows have no later time. Spark's own end is in the year 294,247; Python, JSON and CSV
# have no later day in every zone. A later delivery time means "never", and this one is as good.
MOST_MS = 253_402_214_400_000
_TIME = pa.timestamp("us", tz="UTC")
ARROW_TYPES = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "deliver_at": _TIME,
    "key": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "data": pa.binary(),
    "store": pa.string(),
    DAMAGE: pa.string(),
}


def schema_of(columns: Sequence[str] | None, *, with_damage: bool) -> str:
    """The schema of some columns, all if None, in Spark's form. Raises BadOption."""
    chosen = list(TYPES) if columns is None else list(columns)
    unknown = [name for name in chosen if name not in TYPES]
    if unknown or not chosen or len(set(chosen)) < len(chosen):
        raise BadOption(f"the option columns names some of {', '.join(TYPES)}, each once, not {', '.join(chosen)!r}")
    parts = [f"{name} {TYPES[name]}" for name in chosen]
    return ", ".join([*parts, f"{DAMAGE} string"] if with_damage else parts)


def arrow_schema(schema: Any, *, with_damage: bool) -> pa.Schema:
    """The Arrow schema for a StructType of Spark. Raises BadOption for a column that does not exist."""
    wanted = {**TYPES, DAMAGE: "string"} if with_damage else TYPES
    fields = []
    for field in schema.fields:
        kind = wanted.get(field.name)
        if kind is None:
            raise BadOption(f"there is no column {field.name!r}; the columns are {', '.join(wanted)}")
        if field.dataType.simpleString() != kind:
            raise BadOption(f"the column {field.name} is of type {kind}, not {field.dataType.simpleString()}")
        fields.append(pa.field(field.name, ARROW_TYPES[field.name], nullable=True))
    return pa.schema(fields)
