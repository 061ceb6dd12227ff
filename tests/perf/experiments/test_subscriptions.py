"""The measurement of subscriptions runs in its short form, and notices what is missing."""

from __future__ import annotations

from pathlib import Path

from stratalog.perf.references.redis_stream import has_redis
from tests.perf.short import figures_of


def test_subscriptions_have_a_row_a_way_and_one_of_many(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "subscriptions")
    ways = {row["way"]: row for row in figures["rows"]}
    peers = {name for name in ways if "Redis" in name}
    assert len(peers) == (2 if has_redis() else 0)
    assert (figures["left_out"] is None) == has_redis()
    assert len(ways) == 7 + len(peers)
    assert min(row["per_s"] for row in ways.values()) > 0
    assert ways["receive_batch, ack_batch"]["messages"] == ways["ack_batch, random order"]["messages"] == 6_000
    assert figures["many"]["subscriptions"] == 20
    assert figures["checked_messages"] > 12_000
