"""Bugs of order: of the batches of a line, and of what comes again of it."""

from __future__ import annotations

from .plant import Bug

LINES = "store/subscriptions/lines.py"
ORDERING = "store/subscriptions/ordering.py"
TESTS = ("tests/store/subscriptions/test_order.py",)
AGAIN = ("tests/store/subscriptions/test_order_again.py",)

ORDER: dict[str, Bug] = {
    "order: a line goes on before the acknowledgement": Bug(
        ORDERING, "            self._parked += len(offsets)\n            return False\n",
        "            self._parked += len(offsets)\n            return True\n", TESTS,
    ),
    "order: a line goes on once the first of its batch is acknowledged": Bug(
        ORDERING, "        is_last = len(out) == 1\n", "        is_last = len(out) >= 1\n", TESTS,
    ),
    "order: a later call adds to the batch of a line": Bug(
        ORDERING, "        elif line.call != self._call or line.waiting:\n", "        elif line.waiting:\n", TESTS,
    ),
    "order: a queue whose batch is out is read on": Bug(
        ORDERING, '        return 0 if (queue_id, b"") in self._lines else NO_LIMIT\n', "        return NO_LIMIT\n",
        TESTS,
    ),
    "order: a part of a batch comes again while a consumer has the rest": Bug(
        LINES, "        if (states == RowState.OUT).any():\n            end = 0\n", "", TESTS,
    ),
    "order: a part of a batch comes again beside an acknowledgement on its way": Bug(
        LINES, "(states == RowState.LATE) | (states == RowState.BACK)",
        "(states == RowState.LATE) | (states == RowState.BACK) | (states == RowState.ACKED)", TESTS, hangs=True,
    ),
    "order: what was given back for a while is passed by what is behind it": Bug(
        LINES, "        end = len(rows) if back.all() else int(back.argmin())", "        end = len(rows)", TESTS,
        hangs=True,
    ),
    "order: what waits for its line is forgotten": Bug(
        ORDERING, "            self.stirred += [line]\n", "            pass\n", TESTS,
    ),
    "order: nobody is told that the rest of a batch may come again": Bug(
        ORDERING, "        return line.is_blocked or (is_last and", "        return (is_last and", TESTS,
    ),
    "order: what waits for its line hides what is behind it": Bug(
        "store/subscriptions/redelivery.py",
        "                if state.to_redeliver and queue_id is None:  # the first ones wait for others of their line\n"
        "                    continue\n", "", TESTS,
    ),
    "order: behind a message that cannot be read its line comes again": Bug(
        LINES, "        if not len(bad):\n            return found\n",
        "        if True:\n            return found\n", TESTS,
    ),
    "order: a close forgets the messages whose acknowledgement may fail": Bug(
        "store/subscriptions/in_flight.py", "self._states[: self._rows] == RowState.ACKED)\n",
        "self._states[: self._rows] == 99)\n", ("tests/store/subscriptions/test_failed_acks.py",),
    ),
    "order: what was acknowledged while it was fetched lets pass what is behind it": Bug(
        "store/subscriptions/dispatcher.py",
        "                    still = self._lines.not_after_gaps(batch, still)\n", "                    pass\n", AGAIN,
    ),
    "order: a dead letter that cannot be moved is passed by its line": Bug(
        "store/subscriptions/redelivery.py", "            left &= self.state.order is None or",
        "            left &= True or", AGAIN,
    ),
    "order: a line is listed whole at each call": Bug(
        LINES, "        end = min(end, most)  # the others wait for these\n", "", AGAIN,
    ),
    "order: a recovery forgets what consumers have of a line": Bug(
        ORDERING, "                if receipt != NOT_GIVEN:\n", "                if False:\n", TESTS,
    ),
}  # fmt: skip
