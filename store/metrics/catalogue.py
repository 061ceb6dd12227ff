"""Which metrics there are: a row for each figure of `stats()` that has a value of its own in Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from .family import PREFIX, Figures, Kind, MetricFamily, Sample
from .named import named_families, named_rows

MS: Final = 1 / 1000


class Row(NamedTuple):
    """A metric with one value, or one for each value of a label.

    Attributes:
        places: the figure's path in `stats()`, by the value of the label; "" if there is no label.
        factor: of the figure, to the metric's unit.
    """

    name: str
    kind: Kind
    help: str
    places: dict[str, str]
    label: str = ""
    factor: float = 1


def _count(name: str, help: str, place: str) -> Row:
    return Row(name, "counter", help, {"": place})


def _level(name: str, help: str, place: str, factor: float = 1) -> Row:
    return Row(name, "gauge", help, {"": place}, "", factor)


_SOURCES: Final = {"ring": "recent", "cache": "cached", "read_ahead": "read_ahead", "device": "device"}

ROWS: Final = (
    _level("lanes", "Append logs of the store.", "lanes"),
    _level("streams", "Queues of all topics.", "streams"),
    _count("appended_messages_total", "Messages that were put into frames, acknowledgements too.", "log.messages"),
    _count("appended_payload_bytes_total", "Bytes of these messages, and of records.", "log.payload_bytes"),
    _count("records_total", "Records of the store itself that were put into frames.", "log.records"),
    _count("frames_total", "Frames that were built: batches of messages.", "log.frames"),
    _count("writes_total", "Writes that were handed to the device.", "log.writes"),
    _count("forces_total", "Forces (fsync or its like) of the log.", "log.forces"),
    _count("written_bytes_total", "Bytes that were written to the log, padding included.", "log.written_bytes"),
    _count("padding_bytes_total", "Bytes of padding to whole blocks.", "log.padding_bytes"),
    _count("held_requests_total", "Appends that waited for a second write.", "log.held_requests"),
    _count("prewritten_bytes_total", "Bytes that were written to make segments ahead.", "log.prewritten_bytes"),
    _count("recycled_segments_total", "Segments that were made of removed ones.", "log.recycled_segments"),
    _count("removed_segments_total", "Segments that retention has removed.", "log.removed_segments"),
    Row("segments", "gauge", "Segment files, by their state.",
        {state: f"segments.{state}" for state in ("open", "sealed", "spare", "unsealed")}, "state"),
    _level("failed_seals", "How often in a row a footer could not be written.", "segments.failed_seals"),
    _level("reserve_bytes", "Bytes that are kept for records alone, for a full disk.", "reserve.bytes"),
    _level("reserve_wanted_bytes", "What reserve_bytes should be.", "reserve.wanted_bytes"),
    _level("lanes_without_reserve", "Lanes that have used their reserve.", "reserve.lanes_without"),
    _level("publish_buffer_used_bytes", "Bytes that are accepted and not durable.", "publish_buffer.used_bytes"),
    _level("publish_buffer_limit_bytes", "At this many of them appends wait.", "publish_buffer.cap_bytes"),
    _level("ring_bytes", "Memory with the newest bytes of the log.", "recent_bytes"),
    Row("index_memory_bytes", "gauge", "Memory of the segments' indexes, by their state.",
        {"open": "queue_tables.open_bytes", "sealed": "queue_tables.sealed_bytes"}, "state"),
    Row("log_messages", "gauge", "Messages and records in the log, by the state of their segments.",
        {"open": "queue_tables.open_messages", "sealed": "queue_tables.sealed_messages"}, "state"),
    Row("read_messages_total", "counter", "Messages that were read, by where they came from.",
        {source: f"reads.{name}_messages" for source, name in _SOURCES.items()}, "source"),
    Row("read_bytes_total", "counter", "Bytes of these messages.",
        {"ring": "reads.recent_bytes", "cache": "reads.cached_bytes", "read_ahead": "reads.read_ahead_bytes",
         "device": "reads.device_payload_bytes"}, "source"),
    _count("device_read_bytes_total", "Bytes that reads took from the device, gaps included.", "reads.device_bytes"),
    _count("device_reads_total", "Reads of the device.", "reads.device_reads"),
    _count("unsound_messages_total", "Messages that were wrong in a cache; the log was read instead.",
           "reads.unsound_messages"),
    _count("cache_missed_messages_total", "Messages that came too fast for the cache.", "cache.missed_messages"),
    _count("cache_refused_messages_total", "Messages that found no room in the cache.",
           "cache.messages.refused_messages"),
    _level("cache_used_bytes", "Memory of the message cache in use.", "cache.messages.used_bytes"),
    _level("cache_capacity_bytes", "Memory of the message cache.", "cache.messages.capacity_bytes"),
    _level("subscriptions_in_memory", "Subscriptions that were used since the opening.", "subscriptions.in_memory"),
    _level("subscriptions_in_flight_bytes", "Memory of the messages that consumers have.",
           "subscriptions.in_flight_bytes"),
    _level("subscriptions_read_ahead_bytes", "Memory of messages read ahead for consumers.",
           "subscriptions.read_ahead_bytes"),
    _count("removed_unacknowledged_messages_total",
           "Messages that retention removed before a subscription had acknowledged them.",
           "subscriptions.removed_unacknowledged"),
    _count("expired_messages_total", "Messages that subscriptions left out, older than their topic's ttl_ms.",
           "subscriptions.expired"),
    _count("bulk_commits_total", "Bulk commits that were attached.", "bulk.commits"),
    _count("bulk_messages_total", "Messages of these commits.", "bulk.messages"),
    _level("open_duration_seconds", "How long the opening took.", "recovery.open_ms", MS),
    _level("recovery_scanned_bytes", "Bytes of the log that the opening had to scan.", "recovery.scanned_bytes"),
    _level("log_bytes", "Bytes of the log on the disk, without spares.", "retention.log_bytes"),
    _level("retention_limit_bytes", "The retention_bytes of the store.", "retention.limit_bytes"),
    _level("retention_age_limit_seconds", "The retention_ms of the store.", "retention.limit_ms", MS),
    _level("oldest_message_age_seconds", "The age of the oldest sealed segment's newest message.",
           "retention.oldest_age_ms", MS),
)  # fmt: skip


STATE_ROWS: Final = (
    ("info", "1, with settings of the store as labels."),
    ("poisoned", "1 if a write or force has failed: the store takes no append."),
    ("background_failed", "1 if work in the background has failed since the opening."),
    ("losses", "Losses that a repair has found."),
)
WRITE_TIMES: Final = "write_duration_seconds"
WRITE_TIMES_HELP: Final = "How long a write of the log took with its force, or a force by itself."
TIER_ROWS: Final[tuple[tuple[str, Kind, str, str], ...]] = (
    ("cache_tier_capacity_bytes", "gauge", "capacity_bytes", "Memory of a tier of the message cache."),
    ("cache_tier_used_bytes", "gauge", "used_bytes", "Memory of a tier in use."),
    ("cache_tier_hit_messages_total", "counter", "hit_messages", "Messages that were read from a tier."),
    ("cache_tier_filled_messages_total", "counter", "filled_messages", "Messages that were put into a tier."),
)


def described() -> list[MetricFamily]:
    """All metrics that there may be, without values."""
    gauges: list[tuple[str, Kind, str]] = [(name, "gauge", help) for name, help in STATE_ROWS]
    plain = [(row.name, row.kind, row.help) for row in ROWS]
    tiers = [(name, kind, help) for name, kind, _, help in TIER_ROWS]
    rows: list[tuple[str, Kind, str]] = [*gauges, *plain, (WRITE_TIMES, "histogram", WRITE_TIMES_HELP), *tiers]
    return [MetricFamily(PREFIX + name, kind, help, []) for name, kind, help in [*rows, *named_rows()]]


def families(figures: Figures) -> Iterator[MetricFamily]:
    """Yield the metrics of a store's figures, of a writer or a reader. A figure that is missing or None has none."""
    yield from _state(figures)
    for row in ROWS:
        found = [(label, figure_at(figures, place)) for label, place in row.places.items()]
        samples = [
            Sample(value * row.factor if row.factor != 1 else value, ((row.label, label),) if row.label else ())
            for label, value in found
            if value is not None
        ]
        if samples:
            yield MetricFamily(PREFIX + row.name, row.kind, row.help, samples)
    yield from _write_times(figures)
    yield from _tiers(figures)
    yield from named_families(figures)


def figure_at(figures: Figures, place: str) -> Any:
    """The figure of a path such as "log.messages"; None if there is none."""
    found: Any = figures
    for name in place.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _state(figures: Figures) -> Iterator[MetricFamily]:
    """Yield what the store is, and whether it is well."""
    if "durability" not in figures:
        return
    labels = ("durability", str(figures["durability"])), ("alignment", str(figures["alignment"]))
    samples = [
        Sample(1, labels),
        Sample(int(figures["poisoned"] is not None)),
        Sample(int(figures["last_background_error"] is not None)),
        Sample(len(figures["recovery"]["losses"])),
    ]
    for (name, help), sample in zip(STATE_ROWS, samples, strict=True):
        yield MetricFamily(PREFIX + name, "gauge", help, [sample])


def _write_times(figures: Figures) -> Iterator[MetricFamily]:
    """Yield the histogram of the writes' times."""
    counts, write_ms = figure_at(figures, "log.writes_by_time"), figure_at(figures, "log.write_ms")
    if counts is None or write_ms is None:
        return
    samples, total = [], 0
    for level, count in enumerate(counts):
        total += count
        limit = "+Inf" if level == len(counts) - 1 else f"{2**level / 1e6:.6f}"
        samples.append(Sample(total, (("le", limit),), "_bucket"))
    samples += [Sample(write_ms * MS, (), "_sum"), Sample(total, (), "_count")]
    yield MetricFamily(PREFIX + WRITE_TIMES, "histogram", WRITE_TIMES_HELP, samples)


def _tiers(figures: Figures) -> Iterator[MetricFamily]:
    """Yield the figures of the cache's tiers; there are some kinds of tiers at the most."""
    tiers = figure_at(figures, "cache.messages.tiers") or {}
    for name, kind, figure, help in TIER_ROWS:
        samples = [Sample(of_tier[figure], (("tier", tier),)) for tier, of_tier in tiers.items()]
        if samples:
            yield MetricFamily(PREFIX + name, kind, help, samples)
