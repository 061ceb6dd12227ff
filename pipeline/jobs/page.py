"""A profile as one page of HTML with pictures (SVG): no script, and nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from ..schema import MOST_MS
from .profile import Profile, TopicProfile

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 150, 60, 24  # of a picture, in px; the margins of its axes
COLOUR = "#3465a4"
QUEUES_SHOWN = 50
_STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse}td,th{padding:.2em .8em;"
    "text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}figure{display:"
    "inline-block;margin:.5em 1em .5em 0}figcaption{color:#444}svg text{font-size:10px;fill:#444}"
)
_COLUMNS = ("topic", "messages", "bytes", "queues", "skew", "keys", "delayed", "first", "last")


def page_of(profile: Profile) -> str:
    """The page of a profile."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Profile</title><style>{_STYLE}</style>",
        f"<h1>{profile.messages:,} messages in {len(profile.topics):,} topics</h1>",
        _table(profile.topics),
        *[_topic(topic) for topic in profile.topics],
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _table(topics: Sequence[TopicProfile]) -> str:
    heads = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return f"<table><tr>{heads}</tr>{''.join(map(_row, topics))}</table>"


def _row(topic: TopicProfile) -> str:
    values = (
        escape(topic.topic), f"{topic.messages:,}", f"{topic.bytes:,}", f"{len(topic.queues):,}", f"{topic.skew:.2f}",
        f"{topic.keys:,}", f"{topic.delayed:,}", time_text(topic.first_ms), time_text(topic.last_ms),
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{value}</td>" for value in values) + "</tr>"


def _topic(topic: TopicProfile) -> str:
    step_s = topic.step_ms / 1000
    rates = [(at, messages / step_s) for at, messages, _ in topic.rate]
    pictures = [
        _line(f"messages a second, in steps of {step_s:,.0f} s", rates, topic.step_ms),
        _bars("sizes, bytes", [(_class(low), count) for low, count in topic.sizes]),
        _bars(
            f"messages of the {min(QUEUES_SHOWN, len(topic.queues))} largest queues",
            [(str(queue["queue_id"]), queue["messages"]) for queue in topic.queues[:QUEUES_SHOWN]],
        ),
    ]
    if topic.delays:
        pictures.append(_bars("delays, ms", [(_class(low), count) for low, count in topic.delays]))
    if topic.lags:
        pictures.append(_bars("messages that subscriptions have not acknowledged", sorted(topic.lags.items())))
    return f"<h2>{escape(topic.topic)}</h2>" + "".join(pictures)


def _line(caption: str, points: Sequence[tuple[int, float]], step_ms: int) -> str:
    """A rate over time; steps without a message are 0."""
    if not points:
        return ""
    first, last = points[0][0], points[-1][0] + step_ms
    most = max(rate for _, rate in points) or 1.0
    span = last - first
    corners = []
    before = first
    for at, rate in points:
        if at > before:
            corners += [(before, 0.0), (at, 0.0)]
        before = at + step_ms
        corners += [(at, rate), (before, rate)]
    places = " ".join(f"{_x((at - first) / span):.1f},{_y(rate / most):.1f}" for at, rate in corners)
    line = f'<polyline fill=none stroke="{COLOUR}" points="{places}"/>'
    return _figure(caption, line, most, time_text(first), time_text(last))


def _bars(caption: str, rows: Sequence[tuple[str, int]]) -> str:
    if not rows:
        return ""
    most = max(count for _, count in rows) or 1
    width = 1 / len(rows)
    bars = [
        f'<rect x="{_x(at * width):.1f}" y="{_y(count / most):.1f}" width="{(WIDTH - LEFT) * width * 0.9:.1f}" '
        f'height="{_y(0) - _y(count / most):.1f}" fill="{COLOUR}"><title>{escape(name)}: {count:,}</title></rect>'
        for at, (name, count) in enumerate(rows)
    ]
    return _figure(caption, "".join(bars), most, rows[0][0], rows[-1][0] if len(rows) > 1 else "")


def _figure(caption: str, content: str, most: float, left: str, right: str) -> str:
    base = _y(0)
    axes = (
        f'<path d="M{LEFT} 8V{base}H{WIDTH}" fill=none stroke="#999"/><text x={LEFT - 4} y=14 text-anchor=end>'
        f"{most:,.4g}</text><text x={LEFT - 4} y={base} text-anchor=end>0</text><text x={LEFT} y={HEIGHT - 8}>"
        f"{escape(left)}</text><text x={WIDTH} y={HEIGHT - 8} text-anchor=end>{escape(right)}</text>"
    )
    picture = f'<svg width={WIDTH} height={HEIGHT} role=img aria-label="{escape(caption)}">{axes}{content}</svg>'
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _x(part: float) -> float:
    return LEFT + (WIDTH - LEFT) * part


def _y(part: float) -> float:
    return 8 + (HEIGHT - BOTTOM - 8) * (1 - part)


def _class(low: int) -> str:
    return str(low) if low < 2 else f"{low:,} to {2 * low - 1:,}"


def time_text(time_ms: int) -> str:
    """A time to the second, UTC."""
    return f"{datetime.fromtimestamp(min(time_ms, MOST_MS) / 1000, UTC):%Y-%m-%d %H:%M:%S}"
