"""Streaming reads: micro-batches between positions of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..store import LogOvertaken, MessageStore, ScanFilter, ScanLimit, ScanPlanner
from .errors import BadOption
from .options import ON_LOST, ReadOptions, check_schema, integer, one_of, read_options, size_bytes, time_ms
from .positions import Json, Positions, packed, unpacked
from .schema import arrow_schema
from .source import batches_of
from .workers import Prompt

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream.

    Attributes:
        read: those that it shares with a batch read; its filter has the queues or the time of `starting`.
        from_latest: begin after the newest message.
        limit: of a micro-batch.
        skip_lost: go on after messages that retention removed.
    """

    read: ReadOptions
    from_latest: bool
    limit: ScanLimit
    skip_lost: bool


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a stream. Raises BadOption."""
    options = {name.lower(): value for name, value in given.items()}
    read = read_options(options)
    starting = options.get("starting", EARLIEST).strip()
    twice = next((name for name in ("start_offset", "start_time") if "starting" in options and name in options), None)
    if twice is not None:
        raise BadOption(f"starting and {twice} both say where the stream begins; give one of the two options")
    if starting not in (EARLIEST, LATEST):
        read = replace(read, wanted=_starting(read.wanted, starting))
    rows, most_bytes = integer(options, "max_rows"), size_bytes(options, "max_bytes")
    if rows is not None and rows <= 0:
        raise BadOption(f"the option max_rows is an integer from 1 on, not {rows}")
    given_limits = {"rows": rows, "size_bytes": most_bytes}
    limit = ScanLimit(**{name: value for name, value in given_limits.items() if value is not None})
    return StreamOptions(read, starting == LATEST, limit, one_of(options, "on_lost", ON_LOST) == "skip")


def _starting(wanted: ScanFilter, text: str) -> ScanFilter:
    """A filter with the offsets of queues, or the time, that the option `starting` names."""
    if not text.startswith("{"):
        try:
            return replace(wanted, start_ms=time_ms({"starting": text}, "starting"))
        except BadOption:
            raise BadOption(
                f"the option starting is {EARLIEST}, {LATEST}, a time (ms since the epoch, or such as "
                f'2026-11-22T10:00:00), or offsets of queues such as {{"orders": {{"0": 17}}}}, not {text!r}'
            ) from None
    try:
        starts = tuple(
            (topic, int(queue), offset) for topic, queues in json.loads(text).items()
            for queue, offset in queues.items()
        )  # fmt: skip
        if any(type(offset) is not int for _, _, offset in starts):
            raise ValueError("an offset is an integer")
    except (ValueError, AttributeError, TypeError):
        raise BadOption(f'the option starting is JSON such as {{"orders": {{"0": 17}}}}, not {text!r}') from None
    for topic, queue, _ in starts:
        if (wanted.topics is not None and topic not in wanted.topics) or (
            wanted.queue_ids is not None and queue not in wanted.queue_ids
        ):
            raise BadOption(
                f"starting has an offset of queue {queue} of {topic!r}, which the options topic and queue_id leave out"
            )
    return replace(wanted, starts=starts)


class StoreStreamReader(Prompt, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages of the stores, from position to position.

    A position has a place in each lane's log: all before it was read. So a micro-batch that is run again has the same
    messages, as long as the options are the same and none of them was removed.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        check_schema(options.read, schema.fieldNames())
        self._options = options
        self._schema = arrow_schema(schema, with_damage=options.read.on_damage == "report")
        self._planners: dict[str, ScanPlanner] = {}  # by the store's id; opened in the process that plans
        self._target: Positions | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_planners": {}, "_target": None}  # for tasks: they plan nothing

    def _check_stores(self, positions: Positions) -> None:
        """Raise LogOvertaken if a store of the checkpoint is gone: its unread messages would be skipped."""
        gone = sorted(set(positions) - set(self._opened()))
        if gone and not self._options.skip_lost:
            raise LogOvertaken(
                f"the checkpoint has a position in the store with the id {gone[0]}, and none of "
                f"{', '.join(self._options.read.stores)} is it: it was removed, or another one was put in its place. "
                f"Put it back, begin with a new checkpoint, or go on without it with on_lost=skip"
            )

    def _opened(self) -> dict[str, ScanPlanner]:
        """By id, the planner of each store of the options. Raises BadOption if two of them are copies of one store."""
        if not self._planners:
            opened: dict[str, ScanPlanner] = {}
            paths: dict[str, str] = {}
            try:
                for path in self._options.read.stores:
                    planner = ScanPlanner(path)
                    known = opened.setdefault(planner.store_id, planner)
                    if known is not planner:
                        planner.close()
                        raise BadOption(
                            f"{paths[planner.store_id]} and {path} are one store, or copies of one; give one of them"
                        )
                    paths[planner.store_id] = path
            except BaseException:  # also an interrupt: nobody else knows the opened ones
                _close(opened)
                raise
            self._planners = opened
        return self._planners

    def initialOffset(self) -> Json:
        """The start of a new query. Raises BadOption for a queue that does not reach the offset of `starting`."""
        self._check_starting()
        latest = self._options.from_latest
        planners = self._opened()
        return packed({store: one.end() if latest else one.begin() for store, one in planners.items()})

    def _check_starting(self) -> None:
        """Raise BadOption if `starting` is beyond a queue's end: messages up to there would be skipped."""
        starts, stores = self._options.read.wanted.starts, self._options.read.stores
        if not starts or self._options.skip_lost:
            return
        ends: dict[tuple[str, int], int] = {}
        for path in stores:
            with MessageStore.open(path, read_only=True) as store:
                for topic, queue_id, _ in starts:
                    end = store.queue_bounds(topic, queue_id)[1]
                    ends[topic, queue_id] = max(end, ends.get((topic, queue_id), 0))
        for topic, queue_id, offset in starts:
            end = ends[topic, queue_id]
            if offset > end:
                raise BadOption(
                    f"starting has the offset {offset} of queue {queue_id} of {topic!r}, which ends at {end} in "
                    f"{', '.join(stores)}; give an offset up to there, or begin at {offset} when it comes, with "
                    f"on_lost=skip"
                )

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options."""
        limit, unlimited = self._options.limit, ScanLimit()
        if limit.rows != unlimited.rows:
            return ReadMaxRows(limit.rows)
        return ReadAllAvailable() if limit == unlimited else ReadMaxBytes(limit.size_bytes)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """The end of the next micro-batch. Raises LogOvertaken."""
        begin, options = unpacked(start), self._options
        self._check_stores(begin)
        left = ScanLimit() if isinstance(limit, ReadAllAvailable) else options.limit
        planners = self._opened()
        found = {store: lanes for store, lanes in begin.items() if store not in planners}  # their store may come back
        for at, (store, planner) in enumerate(planners.items()):
            others = len(planners) - at
            share = ScanLimit(max(1, left.rows // others), max(1, left.size_bytes // others))
            lanes = begin.get(store, {})
            target = None if self._target is None else self._target.get(store)
            if left.rows <= 0 or left.size_bytes <= 0:
                found[store] = lanes
                continue
            if left == ScanLimit():
                share = left
            ended = planner.limited(options.read.wanted, lanes, target, share, skip_lost=options.skip_lost)
            found[store] = ended.ends
            left = ScanLimit(left.rows - ended.rows, left.size_bytes - ended.size_bytes)
        return packed(found)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the current ends: later messages are left for another query."""
        self._target = {store: dict(one.end()) for store, one in self._opened().items()}

    def reportLatestOffset(self) -> Json:
        """The ends of the stores' logs, for the progress of the query."""
        return packed({store: one.end() for store, one in self._opened().items()})

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The parts of a micro-batch. Raises LogOvertaken."""
        begin, stop, options = unpacked(start), unpacked(end), self._options
        self._check_stores(stop)  # a restarted query first asks for the parts of its last micro-batch
        parts = []
        for store, planner in self._opened().items():
            if store not in stop or stop[store] == begin.get(store):
                continue
            plan = planner.plan(
                options.read.wanted, part_bytes=options.read.part_bytes, start=begin.get(store, {}), end=stop[store],
                skip_lost=options.skip_lost,
            )  # fmt: skip
            parts += plan.parts
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a part."""
        return batches_of(partition.value, self._schema, self._options.read.on_damage)

    def stop(self) -> None:
        """Close the stores."""
        planners, self._planners = self._planners, {}
        _close(planners)


def _close(planners: Mapping[str, ScanPlanner]) -> None:
    for planner in planners.values():
        planner.close()
