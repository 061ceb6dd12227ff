"""How coarse the times in an index are: as coarse as all subscriptions of its topic accept (R28).

An index rounds times up to multiples of a *tick*, so that no message is early, and entries of one tick share a slot.
Messages keep their own times. When a subscription comes that accepts less, the index is made again from the log, with
exact times. Until it has read all of the log, the topic lags, and a message's own time decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

MOST_BITS = 32  # 50 days

if TYPE_CHECKING:
    from .topic import DelayedTopic


def tick_of(precision_ms: int) -> int:
    """The greatest power of two that is at most a precision; 1 for 0."""
    return 1 << min(MOST_BITS, max(0, precision_ms.bit_length() - 1))


def set_precision(topic: DelayedTopic, precision_ms: int) -> None:
    """All subscriptions of the topic accept its messages so much later than their times: set the tick by that."""
    with topic.lock:
        topic.tick_ms = tick_of(precision_ms)
        tracker = topic._tracker
        if tracker.damage or topic.is_closed:
            return  # the index that is made again has this precision
        if tracker.latest_ms > topic.tick_ms:
            topic.why_anew = f"a subscription wants its messages within {precision_ms} ms"
            topic.ask_for_visit()
        else:
            tracker.reset_tick_time(topic.tick_ms)
