"""Writing with Spark: tasks write shards, and the driver commits them, each row exactly once.

A commit has a name. A batch's is the option `transaction`, or drawn; a stream's is the option `query`, or Spark's id of
the query, with the number of the micro-batch. The stores remember it. A repeated commit, after the driver died or its
checkpoint was lost, changes nothing; one that is repeated with other rows fails.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ..store import Shard, ShardWriter, StoreConfig, abort_shards, commit_shards, replace_store
from .errors import BadOption, PipelineError
from .sink_columns import by_store, check_columns, columns_of
from .sink_stores import SinkOptions, existing, sink_options, stores_at, stores_in_place_of
from .workers import Prompt, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
CHECKPOINT = "checkpointlocation"  # Spark passes it with the options of a stream


@dataclass
class Written(WriterCommitMessage):
    """The result of a task: its shards by store. `query_id` is Spark's, of a stream."""

    partition: int
    shards: dict[str, tuple[Shard, ...]]
    rows: int
    payload_bytes: int
    query_id: str | None = None


def write_rows(
    batches: Iterator[pa.RecordBatch], stores: Sequence[Path], transaction: str, config: StoreConfig | None = None
) -> Written:
    """Write a task's rows into shards, and force them; an error leaves no files. Raises StoreError."""
    settle()
    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    writers: dict[int, ShardWriter] = {}
    rows = payload_bytes = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            columns = columns_of(batch)
            for at, picked in by_store(columns.streams, columns.stream_index, len(stores)):
                if at not in writers:
                    writers[at] = ShardWriter(
                        stores[at], transaction=transaction, partition=partition, attempt=attempt, config=config
                    )
                mine = columns if picked is None else columns.take(picked)
                rows += writers[at].append_columns(*mine)
            payload_bytes += int(columns.lengths.sum())
        shards = {str(stores[at]): writer.finish() for at, writer in sorted(writers.items())}
    except BaseException:  # also an interrupt: a failed task leaves no files
        for writer in writers.values():
            writer.abort()
        raise
    return Written(partition, shards, rows, payload_bytes, query_id)


def commit_rows(
    messages: Sequence[WriterCommitMessage | None], stores: Sequence[Path], name: str, batch: int | None, *,
    keep: bool, wait_ms: int,
) -> None:  # fmt: skip
    """Commit the tasks' shards to each store, in the order of the partitions. Raises StoreError.

    With `keep` the name is kept in each store, also in one without rows: so a replay with rows is refused. But a
    micro-batch without any row is only compared with an earlier one of its number, and writes nothing: else a stream
    that reads the store that it writes would find news forever. A replay of it with rows is refused if later batches
    came.
    """
    settle()
    written = written_in(messages)
    leaves = keep and (batch is None or any(one.rows for one in written))
    for store in stores:
        shards = [shard for one in written for shard in one.shards.get(str(store), ())]
        if shards or keep:
            commit_shards(store, shards, name=name, batch=batch, keep=leaves, wait_ms=wait_ms)


def abort_rows(
    messages: Sequence[WriterCommitMessage | None], stores: Sequence[Path], transaction: str | None = None
) -> None:
    """Remove the tasks' shards, except committed ones.

    With a `transaction` that no other write has, leftovers of killed tasks are removed, too: else a disk that is full
    of them would stay full.
    """
    written = written_in(messages)
    for store in stores:
        abort_shards(
            store, [shard for one in written for shard in one.shards.get(str(store), ())], transaction=transaction
        )  # fmt: skip


def written_in(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """The tasks' messages, in the order of the partitions."""
    return sorted([one for one in messages if isinstance(one, Written)], key=lambda one: one.partition)


class BatchSink(Prompt, DataSourceArrowWriter):
    """A batch write: `mode("append")`, or `mode("overwrite")` to replace a store."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Called on the driver: after it the stores exist. Raises BadOption, StoreError."""
        self._options = chosen = sink_options(options)
        check_columns(schema)
        if any(name.lower() == CHECKPOINT for name in options):
            raise BadOption(f"a write that is no stream has no {CHECKPOINT}; name it with the option transaction")
        self._keep = chosen.name is not None
        self._name = chosen.name or f"write-{secrets.token_hex(16)}"
        self._fresh = stores_in_place_of(chosen) if overwrite else None
        self._stores = existing(self._fresh) if self._fresh is not None else stores_at(chosen)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's part."""
        return write_rows(iterator, self._stores, self._name, self._options.config)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit: all tasks have written. Raises StoreError; Spark then calls `abort`."""
        commit_rows(
            messages, self._stores, self._name, None, keep=self._keep, wait_ms=self._options.wait_ms
        )  # fmt: skip
        if self._fresh is not None:
            replace_store(self._options.path, self._fresh)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the shards: the write failed."""
        if self._fresh is not None:
            shutil.rmtree(self._fresh, ignore_errors=True)
        else:
            abort_rows(messages, self._stores, None if self._keep else self._name)


class StreamSink(Prompt, DataSourceStreamArrowWriter):
    """A streaming write, append mode."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Called on the driver for each micro-batch. Raises BadOption, StoreError."""
        self._options: SinkOptions = sink_options(options)
        check_columns(schema)
        if overwrite:
            raise PipelineError("a stream appends to a store; use outputMode('append')")
        self._stores = stores_at(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's part."""
        return write_rows(iterator, self._stores, self._options.name or "stream", self._options.config)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch: all tasks have written. Raises StoreError; then Spark calls `abort`: the query
        fails."""
        written = written_in(messages)
        name = self._options.name or next((one.query_id for one in written if one.query_id), None)
        if name is None:
            if any(one.rows for one in written):
                raise PipelineError(
                    f"Spark told no task of which query its rows are, so batch {batchId} has no name and was not "
                    f"written; give the query one with the option query"
                )
            return
        commit_rows(messages, self._stores, name, batchId, keep=True, wait_ms=self._options.wait_ms)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the shards: the micro-batch failed."""
        abort_rows(messages, self._stores)
