"""Metrics with a topic's or a subscription's name. Their number has a cap: a store may have a million of either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from .family import MOST_NAMED, PREFIX, Figures, Kind, MetricFamily, Sample

_CAP: Final = f"At most {MOST_NAMED}, see stratalog_left_out."
_Rows = tuple[tuple[str, Kind, str, str], ...]

TOPIC_ROWS: Final[_Rows] = (
    ("topic_appended_messages_total", "counter", "appended", f"Messages that a topic has ever got. {_CAP}"),
    ("topic_queues", "gauge", "queues", "Queues of a topic."),
)
DELAYED_ROWS: Final[_Rows] = (
    ("delayed_pending_messages", "gauge", "pending", f"Messages that wait for their delivery time. {_CAP}"),
    ("delayed_memory_bytes", "gauge", "memory_bytes", "Memory of a topic's index of delays."),
    ("delayed_disk_bytes", "gauge", "disk_bytes", "Disk of a topic's index of delays."),
    ("kept_bytes", "gauge", "kept_bytes", "Bytes of segments that are kept for a topic after retention."),
    ("copies_bytes", "gauge", "copies_bytes", "Bytes of a topic's messages that were written again for retention."),
)
SUBSCRIPTION_ROWS: Final[_Rows] = (
    ("subscription_unacknowledged_messages", "gauge", "unacknowledged",
     f"Messages that a subscription has not acknowledged. {_CAP}"),
    ("subscription_in_flight_messages", "gauge", "in_flight",
     "Of these, the ones that were given out, or given back with a delay."),
)  # fmt: skip
LEFT_OUT: Final[tuple[str, Kind, str]] = (
    "left_out", "gauge", "Topics, delays and subscriptions that have no values of their own.",
)  # fmt: skip


def named_rows() -> list[tuple[str, Kind, str]]:
    """The name, the kind and the help of each metric of a name."""
    rows = *TOPIC_ROWS, *DELAYED_ROWS, *SUBSCRIPTION_ROWS
    return [*((name, kind, help) for name, kind, _, help in rows), LEFT_OUT]


def named_families(figures: Figures) -> Iterator[MetricFamily]:
    """Yield the metrics of topics and subscriptions, and how many of these have none."""
    named: Any = figures.get("named")
    if named is None:
        return
    yield from _labelled(TOPIC_ROWS, named["topics"], ("topic",))
    delayed = [{"topic": topic, **row} for topic, row in figures.get("delayed", {}).items()]
    yield from _labelled(DELAYED_ROWS, delayed, ("topic",))
    yield from _labelled(SUBSCRIPTION_ROWS, named["subscriptions"], ("topic", "subscription"))
    left_out = [Sample(count, (("kind", kind),)) for kind, count in sorted(named["left_out"].items())]
    yield MetricFamily(PREFIX + LEFT_OUT[0], LEFT_OUT[1], LEFT_OUT[2], left_out)


def _labelled(rows: _Rows, figures: Sequence[Figures], labels: tuple[str, ...]) -> Iterator[MetricFamily]:
    for name, kind, figure, help in rows:
        samples = [
            Sample(one[figure], tuple((label, one[label]) for label in labels))
            for one in figures
            if one.get(figure) is not None
        ]
        if samples:
            yield MetricFamily(PREFIX + name, kind, help, samples)
