"""Bugs of costs that grow: of counts, of retention beside delays, of the due list."""

from __future__ import annotations

from .plant import Bug

COUNTS = ("tests/store/subscriptions/test_growth.py",)
RETENTION = ("tests/store/delayed/test_growth.py",)

GROWTH_OF_CONSUMERS: dict[str, Bug] = {
    "growth: a backlog is counted under the subscription's lock": Bug(
        "store/subscriptions/subscription.py",
        "        return backlog_of(bounds, known)\n", "            return backlog_of(bounds, known)\n", COUNTS,
    ),
    "growth: each queue is cut out of all delayed messages": Bug(
        "store/delayed/counting.py", "        middle = max(queue_id, _queue_of(part.min()) + 1) << ENTRY_BITS\n",
        "        middle = (_queue_of(part.min()) + 1) << ENTRY_BITS\n", COUNTS,
    ),
    "growth: a count of a topic without an index makes none": Bug(
        "store/delayed/counting.py", "            return delays.topic(topic)\n", "            return None\n", RETENTION,
    ),
    "growth: counts look for delivery times from the beginning of the log": Bug(
        "store/delayed/counting.py", "            if not self._walks:\n", "            if True:\n", RETENTION,
    ),
    "growth: a count makes the indexes of all topics": Bug(
        "store/delayed/counting.py", "self._made(topic), False\n", "self._made(topic), True\n",
        ("tests/store/subscriptions/test_backlog.py",),
    ),
    "growth: an index that could not be made is tried again by each count": Bug(
        "store/delayed/counting.py", " + TRY_AGAIN_S\n", "\n", ("tests/store/subscriptions/test_backlog.py",),
    ),
    "growth: what was wanted of other segments is forgotten when one goes": Bug(
        "store/delayed/keeping.py", "            self._looks[lane.index].drop(oldest)\n",
        "            del self._looks[lane.index]\n", RETENTION,
    ),
    "growth: retention asks all expired segments whether one has delays": Bug(
        "store/delayed/keeping.py", "        has_dues = _has_dues(oldest)\n",
        "        has_dues = any(map(_has_dues, self._expired(lane, oldest)))\n", RETENTION,
    ),
    "growth: a cancellation is a chunk of the due list": Bug(
        "store/delayed/due_list.py", " + len(due.offsets) <= JOINED_ROWS:\n", " < 0:\n",
        ("tests/store/delayed/test_due_list.py",),
    ),
}  # fmt: skip
