"""Bugs of costs that grow: of counts, of retention beside delays, of the due list."""

from __future__ import annotations

from .plant import Bug

COUNTS = ("tests/store/subscriptions/test_growth.py",)
RETENTION = ("tests/store/delayed/test_growth.py",)
SPARED = ("tests/store/subscriptions/test_spared_looks.py",)
CALLING = ("tests/store/subscriptions/test_calling.py",)

GROWTH_OF_CONSUMERS: dict[str, Bug] = {
    "growth: a backlog is counted under the subscription's lock": Bug(
        "store/subscriptions/state.py",
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
        "store/delayed/counting.py", "            if not self._scans:\n", "            if True:\n", RETENTION,
    ),
    "growth: a count makes the indexes of all topics": Bug(
        "store/delayed/counting.py", "self._made(topic), False\n", "self._made(topic), True\n",
        ("tests/store/subscriptions/test_backlog.py",),
    ),
    "growth: an index that could not be made is tried again by each count": Bug(
        "store/delayed/counting.py", " + TRY_AGAIN_S\n", "\n", ("tests/store/subscriptions/test_backlog.py",),
    ),
    "looks: a wait that ends looks at the queues again": Bug(
        "store/subscriptions/receiving.py", "None if self._has_nothing(seen) else take()", "take()", CALLING,
    ),
    "looks: one that has found the last message looks for more": Bug(
        "store/subscriptions/scanner.py", "        self.is_unfinished &= found\n", "", CALLING,
    ),
    "looks: what has timed out is not looked for": Bug(
        "store/subscriptions/receiving.py", " and self._state.now_ms() < self._dispatcher.next_ms()", "", SPARED,
    ),
    "looks: what became due is not looked for": Bug(
        "store/subscriptions/dispatcher.py", "not self.is_unfinished and self.delays.are_at_rest\n",
        "not self.is_unfinished\n", SPARED,
    ),
    "looks: what is left over is not looked for": Bug(
        "store/subscriptions/dispatcher.py", "self._failed is None and not self.is_unfinished and self.delays",
        "self._failed is None and self.delays",
        ("tests/store/subscriptions/test_spared_looks.py::test_what_a_look_has_left_is_looked_for",), hangs=True,
    ),
    "looks: a seek tells nobody": Bug(
        "store/subscriptions/dispatcher.py", "        self.state.notify()\n        self._has_missed = had_missed\n",
        "        self._has_missed = had_missed\n", SPARED,
    ),
    "looks: an error that waits for the next call waits on": Bug(
        "store/subscriptions/dispatcher.py", "not has_lines and self._failed is None and", "not has_lines and",
        SPARED,
    ),
    "growth: a count asks for the bounds of each queue": Bug(
        "store/read/finder.py", "            if firsts is None:\n", "            if True:\n", COUNTS,
    ),
    "growth: a count copies what is acknowledged of each queue": Bug(
        "store/subscriptions/backlog.py", "{queue_id: acked.mark for", "{queue_id: acked.copy().mark for",
        COUNTS,
    ),
    "growth: bounds of a topic leave its trims out": Bug(
        "store/read/finder.py", "found[at] = max(first, lows[at]), following", "found[at] = first, following", COUNTS,
    ),
    "growth: bounds at once take a footer's next message for one of this stream": Bug(
        "store/segment/borders.py", "    there = (footer.taken(STREAM)[rows] == numbers) &",
        "    there = (footer.taken(STREAM)[rows] >= numbers) &", ("tests/store/test_firsts.py",),
    ),
    "growth: a pick looks at all segments": Bug(
        "store/read/picking.py", "(index := lane.groups.where(view.sealed, *place)) in looked",
        "(index := len(view.sealed) - 1 - min(nth, len(view.sealed) - 1)) in looked", ("tests/store/test_picking.py",),
    ),
    "growth: a pick looks at a segment again for each message that is not there": Bug(
        "store/read/picking.py", "        looked.add(index)\n", "", ("tests/store/test_picking.py",),
    ),
    "growth: each queue behind retention is searched for alone": Bug(
        "store/segment/borders.py", "        for one in sealed:\n",
        "        if sealed and not sealed[0].record.full:\n            return None\n        for one in sealed:\n",
        ("tests/store/test_firsts.py",),
    ),
    "growth: what was wanted of other segments is forgotten when one goes": Bug(
        "store/delayed/keeping.py", "            self._looks[lane.index].drop(oldest)\n",
        "            del self._looks[lane.index]\n", RETENTION,
    ),
    "growth: retention asks all expired segments whether one has delays": Bug(
        "store/delayed/keeping.py", "        if _has_dues(oldest):\n",
        "        if any(map(_has_dues, self._expired(lane, oldest))):\n", RETENTION,
    ),
    "growth: a cancellation is a chunk of the due list": Bug(
        "store/delayed/due_list.py", " + len(due.offsets) <= JOINED_ROWS:\n", " < 0:\n",
        ("tests/store/delayed/test_due_list.py",),
    ),
}  # fmt: skip
