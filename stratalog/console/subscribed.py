"""The output of `stratalog subscriptions`: a subscription as a line of text, or as a row of JSON."""

from __future__ import annotations

from collections.abc import Mapping

from ..perf.report.figures import Figures, counted
from ..perf.report.tables import plain
from ..store import SubscriptionInfo


def subscription_row(info: SubscriptionInfo) -> Figures:
    """A subscription, ready for JSON: names, counts of messages, settings."""
    settings, backlog = info.settings, info.backlog
    wanted = settings.filter
    return {
        "topic": info.topic,
        "name": info.name,
        "unacknowledged": backlog.total,
        "ready": backlog.ready,
        "delayed": backlog.delayed,
        "expired": info.expired,
        "removed_unacknowledged": info.removed_unacknowledged,
        "mode": settings.mode,
        "order_by": settings.order_by,
        "filter": {name: list(values) for name, values in wanted.items()} if isinstance(wanted, Mapping) else wanted,
        "max_attempts": settings.max_attempts,
        "dead_letter_topic": settings.dead_letter_topic,
        "precision_ms": settings.precision_ms,
        "backoff_ms": None if settings.backoff_ms is None else list(settings.backoff_ms),
    }


def subscription_line(row: Figures) -> str:
    """A subscription as text: names, its unacknowledged messages, and settings other than the defaults."""
    parts = [f"{row['topic']} {row['name']}: {counted(row['unacknowledged'], 'message')} not acknowledged"]
    if row["delayed"]:
        parts.append(f"{row['delayed']:,} of them delayed")
    if row["expired"]:
        parts.append(f"{row['expired']:,} expired")
    if row["removed_unacknowledged"]:
        parts.append(f"{row['removed_unacknowledged']:,} removed before they were acknowledged")
    if row["mode"] == "ordered":
        parts.append(f"ordered by {row['order_by']}")
    if isinstance(row["filter"], str):
        parts.append(row["filter"])
    elif row["filter"] is not None:
        parts += [f"{name} in {', '.join(values)}" for name, values in row["filter"].items()]
    if row["max_attempts"] is not None:
        parts.append(f"{counted(row['max_attempts'], 'attempt')}, then {row['dead_letter_topic']}")
    if row["backoff_ms"] is not None:
        parts.append(f"again after {', '.join(f'{one:,}' for one in row['backoff_ms'])} ms")
    return plain("; ".join(parts))
