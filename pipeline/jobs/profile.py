"""Profiles topics and queues: rates over time, sizes, skew, keys, delays. Payloads are not read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...store import MessageStore
from ..options import read_options
from .part_source import Paths, checked_options, rows_of_parts
from .profile_part import HASHES, JOB, KEY, MINUTE, MINUTE_MS, SCHEMA, SKETCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINTS = 120  # of a rate over time, at most


@dataclass(slots=True)
class TopicProfile:
    """A topic in figures. Times are ms since the epoch, sizes bytes of data.

    Attributes:
        topic: its name.
        messages, bytes: in all.
        least_bytes, most_bytes: the smallest and the largest message.
        first_ms, last_ms: the times of the first and the last message.
        queues: for each queue its `queue_id`, `messages` and `bytes`, the largest first.
        skew: the largest queue's messages over the mean queue's; 1.0 is even.
        keyed: messages with a key. keys: about how many different keys there are.
        delayed: messages with a delivery time. mean_delay_ms: from append to delivery time; None without any.
        rate: (time, messages, bytes) of the steps of `step_ms` that have messages.
        sizes, delays: (lower bound, messages) of classes of bytes, or of ms; each bound is twice the one before.
        lags: by subscription, the messages that it has not acknowledged.
    """

    topic: str
    messages: int = 0
    bytes: int = 0
    least_bytes: int = 0
    most_bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    queues: list[dict[str, int]] = field(default_factory=list)
    skew: float = 1.0
    keyed: int = 0
    keys: int = 0
    delayed: int = 0
    mean_delay_ms: float | None = None
    step_ms: int = MINUTE_MS
    rate: list[tuple[int, int, int]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    delays: list[tuple[int, int]] = field(default_factory=list)
    lags: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of some stores: a `TopicProfile` a topic, the largest first."""

    topics: list[TopicProfile]

    @property
    def messages(self) -> int:
        """The messages of all topics."""
        return sum(topic.messages for topic in self.topics)


def profile(spark: SparkSession, paths: Paths, **options: Any) -> Profile:
    """Profile the topics of some stores. It reads heads of frames and no payload. Lags are those of now.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        options: of a read, such as `topic` or `start_time`.

    Raises Spark's errors; for damage, with StoreCorrupt inside.
    """
    rows = rows_of_parts(spark, paths, JOB, SCHEMA, options).cache()
    try:
        counted = _totals(rows.where(f"kind <> '{KEY}'"))
        hashes = rows.where(f"kind = '{KEY}'").groupBy("topic")
        keys = {row[0]: row[1:] for row in hashes.agg(*_sketches()).collect()}
    finally:
        rows.unpersist()
    found: dict[str, TopicProfile] = {}
    steps = _steps(counted)
    for row in counted:
        topic = found.setdefault(row["topic"], TopicProfile(row["topic"], step_ms=steps.get(row["topic"], MINUTE_MS)))
        _add(topic, row)
    for topic in found.values():
        _finish(topic, *keys.get(topic.topic, (0, [])))
    for store in read_options(checked_options(paths, options)).stores:
        with MessageStore.open(store, read_only=True) as opened:
            for one in opened.subscriptions():
                if one.topic in found:
                    lags = found[one.topic].lags
                    lags[one.name] = lags.get(one.name, 0) + one.backlog.total
    return Profile(sorted(found.values(), key=lambda one: (-one.messages, one.topic)))


def _totals(rows: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions  # noqa: PLC0415  # an extra: the command imports this module without it

    grouped = rows.groupBy("kind", "topic", "queue_id", "bucket").agg(
        functions.sum("messages").alias("messages"), functions.sum("bytes").alias("bytes"),
        functions.min("least").alias("least"), functions.max("most").alias("most"),
    )  # fmt: skip
    return [row.asDict() for row in grouped.orderBy("kind", "topic", "queue_id", "bucket").collect()]


def _sketches() -> list[Any]:
    from pyspark.sql.functions import expr  # noqa: PLC0415  # as above

    return [
        expr("sum(messages) as keyed"),
        expr(f"slice(sort_array(collect_set(bucket)), 1, {SKETCH}) as hashes"),
    ]


def _steps(rows: list[dict[str, Any]]) -> dict[str, int]:
    """By topic, the step of its rate: a minute, or as many minutes as leave at most POINTS steps."""
    spans: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row["kind"] == MINUTE:
            low, high = spans.get(row["topic"], (row["bucket"], row["bucket"]))
            spans[row["topic"]] = min(low, row["bucket"]), max(high, row["bucket"])
    return {
        topic: MINUTE_MS * max(1, -(-((high - low) // MINUTE_MS + 1) // POINTS)) for topic, (low, high) in spans.items()
    }


def _add(topic: TopicProfile, row: dict[str, Any]) -> None:
    """Add a row of counts. Rows of one kind come in the order of their buckets."""
    messages, size = row["messages"], int(row["bytes"])
    match row["kind"]:
        case "queue":
            topic.least_bytes = min(topic.least_bytes, row["least"]) if topic.messages else row["least"]
            topic.most_bytes = max(topic.most_bytes, row["most"])
            topic.messages, topic.bytes = topic.messages + messages, topic.bytes + size
            topic.queues.append({"queue_id": row["queue_id"], "messages": messages, "bytes": size})
        case "minute":
            step = row["bucket"] // topic.step_ms * topic.step_ms
            topic.first_ms = min(topic.first_ms, row["least"]) if topic.rate else row["least"]
            topic.last_ms = max(topic.last_ms, row["most"])
            if topic.rate and topic.rate[-1][0] == step:
                _, before, bytes_before = topic.rate.pop()
                messages, size = messages + before, size + bytes_before
            topic.rate.append((step, messages, size))
        case "size":
            topic.sizes.append((row["bucket"], messages))
        case "delay":
            topic.delays.append((row["bucket"], messages))
            topic.delayed += messages
            topic.mean_delay_ms = (topic.mean_delay_ms or 0.0) + size  # the sum, until all rows were added


def _finish(topic: TopicProfile, keyed: int, hashes: list[int]) -> None:
    topic.queues.sort(key=lambda queue: (-queue["messages"], queue["queue_id"]))
    if topic.queues:
        topic.skew = topic.queues[0]["messages"] * len(topic.queues) / topic.messages
    if topic.delayed and topic.mean_delay_ms is not None:
        topic.mean_delay_ms /= topic.delayed
    topic.keyed, topic.keys = keyed, len(hashes)
    if len(hashes) == SKETCH:
        topic.keys = round((SKETCH - 1) * HASHES / (hashes[-1] + HASHES // 2))
