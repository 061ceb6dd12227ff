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
        ORDERING, "        elif line.call != self._call or line.behind:\n", "        elif line.behind:\n", TESTS,
    ),
    "order: a queue whose batch is out is read on": Bug(
        ORDERING, '        return 0 if (queue_id, b"") in self._lines else NO_LIMIT\n', "        return NO_LIMIT\n",
        TESTS,
    ),
    "order: a part of a batch comes again while a consumer has the rest": Bug(
        LINES, "        if (states == RowState.OUT).any():\n            end = 0\n", "", TESTS,
    ),
    "order: a part of a batch comes again beside an acknowledgement on its way": Bug(
        LINES, "np.where(rows < 0, RowState.GONE, ", "np.where(rows < 0, RowState.BACK, ", TESTS, hangs=True,
    ),
    "order: what was given back for a while is passed by what is behind it": Bug(
        LINES, "        end = len(rows) if back.all() else int(back.argmin())", "        end = len(rows)", TESTS,
    ),
    "order: what waits for its line is forgotten": Bug(
        ORDERING, "            self.stirred += [line]\n", "            pass\n", TESTS,
    ),
    "order: nobody is told that the rest of a batch may come again": Bug(
        ORDERING, "        return line.is_blocked or (is_last and", "        return (is_last and", TESTS,
    ),
    "order: what waits for its line hides what is behind it": Bug(
        "store/subscriptions/redelivery.py",
        "                if state.to_redeliver:  # the first ones had to wait for others of their line\n"
        "                    continue\n", "", TESTS,
    ),
    "order: behind a message that cannot be read its line comes again": Bug(
        LINES, "        if not len(bad):\n            return found\n", "        if True:\n            return found\n",
        TESTS,
    ),
    "order: messages whose acknowledgement failed have no receipt in their line": Bug(
        "store/subscriptions/state.py", "            self.note_given(still.receipts, still.places)",
        "            pass", ("tests/store/subscriptions/test_failed_acks.py",),
    ),
    "order: what was acknowledged while it was fetched lets pass what is behind it": Bug(
        "store/subscriptions/giving_out.py", "                still = _not_behind_gaps(state.order, batch, still)\n",
        "                pass\n", AGAIN,
    ),
    "order: a dead letter that cannot be moved is passed by its line": Bug(
        "store/subscriptions/redelivery.py", "            left &= self.state.order is None or",
        "            left &= True or", AGAIN,
    ),
    "order: a line is listed whole at each call": Bug(
        LINES, "        end = min(end, most)  # the others wait for these\n", "", AGAIN,
    ),
    "order: a recovery forgets what consumers have of a line": Bug(
        ORDERING, "                if receipt != NOT_GIVEN or is_acked(queue_id, offset):\n",
        "                if is_acked(queue_id, offset):\n", TESTS,
    ),
}  # fmt: skip
