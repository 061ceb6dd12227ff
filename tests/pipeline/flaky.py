"""The sink with faults between its steps: the option `fault` says which."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, WriterCommitMessage

from stratalog.pipeline.sink import BatchSink, StreamSink, Written

from ..store.shards.helpers import attaching

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class FlakySink(DataSource):
    """`fault`: "lose" (finished shards of a first attempt), "raise" or "kill", " before" or " after" the manifest.

    With the option `as_segments` small commits become segments, too, where this process attaches them.
    A kill takes the driver and the process that commits, once: the file `once` says that it was done.
    """

    @classmethod
    def name(cls) -> str:
        return "flaky"

    def schema(self) -> str:
        return "topic string, queue_id int, data binary"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        options, fault = split(dict(self.options))
        attaching(setattr, as_segments=bool(options.pop("as_segments", "")))
        return _FlakyBatch(options, schema, overwrite).with_fault(*fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        options, fault = split(dict(self.options))
        attaching(setattr, as_segments=bool(options.pop("as_segments", "")))
        return _FlakyStream(options, schema, overwrite).with_fault(*fault)


def split(options: dict[str, str]) -> tuple[dict[str, str], tuple[str, str]]:
    """The options of the sink, and the fault."""
    fault = options.pop("fault", ""), options.pop("once", "")
    return options, fault


class _Faults:
    fault = once = ""

    def with_fault(self, fault: str, once: str) -> Any:
        self.fault, self.once = fault, once
        return self

    def strike(self, moment: str) -> None:
        if self.fault == f"raise {moment}":
            raise RuntimeError("the commit fails")
        if self.fault == f"kill {moment}" and not Path(self.once).exists():
            Path(self.once).touch()
            os.killpg(int(os.environ["DRIVER_GROUP"]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # Spark's Python processes have a group of their own


def _lose(fault: str) -> None:
    context = TaskContext.get()
    if fault == "lose" and context is not None and context.attemptNumber() == 0:
        raise RuntimeError("this attempt loses")


class _FlakyBatch(_Faults, BatchSink):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        _lose(self.fault)
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.strike("before")
        super().commit(messages)
        self.strike("after")


class _FlakyStream(_Faults, StreamSink):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        _lose(self.fault)
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.strike("before")
        super().commit(messages, batchId)
        self.strike("after")
