"""Names of streams, and the lane that a stream lives in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stratalog.store.errors import InvalidTopic
from stratalog.store.log.streams import check_name, lane_of

GOOD_TOPICS = ["a", "x" * 255, "ü" * 127, "../../etc/passwd", "/", "..", ".", "a b", "a\\b", "日本", "CON", "%00"]
BAD_TOPICS = [
    "", "x" * 256, "x" * 1000, "ü" * 128, "a\0b", "line\n", "\t", "\x1b[31m", "\x7f", "\ud800", b"bytes", None,
    1, ["a"], ("a",),
]  # fmt: skip
LANES_OF_ORDERS = [3, 2, 1, 1, 0, 3, 3, 2]
BAD_QUEUE_IDS = [-1, -(1 << 70), 1 << 31, 1 << 70, True, False, 1.0, "1", None, [0], np.int64(1).tobytes()]


@pytest.mark.parametrize("topic", GOOD_TOPICS)
def test_topic_of_up_to_255_bytes_without_control_characters_is_taken(topic: str) -> None:
    assert check_name(topic, 0) == (topic, 0)


@pytest.mark.parametrize("topic", BAD_TOPICS, ids=ascii)
def test_bad_topic_is_refused_with_a_reason(topic: object) -> None:
    with pytest.raises(InvalidTopic, match="topic"):
        check_name(topic, 0)


@pytest.mark.parametrize("queue_id", BAD_QUEUE_IDS, ids=ascii)
def test_bad_queue_id_is_refused_with_a_reason(queue_id: object) -> None:
    with pytest.raises(InvalidTopic, match="queue id"):
        check_name("t", queue_id)


@pytest.mark.parametrize("queue_id", [0, 1, (1 << 31) - 1])
def test_queue_id_of_31_bits_is_taken(queue_id: int) -> None:
    assert check_name("t", queue_id) == ("t", queue_id)


def test_lane_of_a_stream_never_changes() -> None:
    """Known values: a store on disk depends on them."""
    assert [lane_of("orders", queue, 4) for queue in range(8)] == LANES_OF_ORDERS


def test_lanes_get_about_as_many_streams_each() -> None:
    counts = Counter(lane_of(f"t{topic}", queue, 4) for topic in range(20) for queue in range(50))
    assert min(counts.values()) > 180
    assert set(counts) == {0, 1, 2, 3}
