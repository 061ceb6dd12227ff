"""Bugs of consumers beside faults: records in parts, damage, power cuts, and removed messages."""

from __future__ import annotations

from .plant import Bug

FOLDER = "tests/store/subscriptions"

CONSUMERS: dict[str, Bug] = {
    "consumers: an acknowledgement between its parts ends a snapshot": Bug(
        "store/subscriptions/cursor.py", "        if record.kind == DELETE:\n",
        "        if record.kind != STATE:\n            self._parts = StateParts()\n        if record.kind == DELETE:\n",
        (f"{FOLDER}/test_parts.py",),
    ),
    "consumers: a part of another state goes on with an unfinished one": Bug(
        "store/subscriptions/cursor.py", "        if record.part == 0:\n            self._of, self._bodies =",
        "        if record.part == 0 and not self._bodies:\n            self._of, self._bodies =",
        (f"{FOLDER}/test_parts.py",),
    ),
    "consumers: a change between the parts of all changes is lost": Bug(
        "store/delayed/changes.py", "rows, self._parts, self._between = self._parts + self._between, [], []",
        "rows, self._parts, self._between = self._parts, [], []", ("tests/store/delayed/test_changes.py",),
    ),
    "consumers: acknowledgements of lost messages count for those that get their offsets": Bug(
        "store/subscriptions/cursor.py", "            if max(acked.end, tried.end) > end:\n", "            if False:\n",
        (f"{FOLDER}/test_lost_messages.py",),
    ),
    "consumers: what was acknowledged of lost messages is forgotten in memory alone": Bug(
        "store/subscriptions/cursor.py", "                acked.era += 1\n", "",
        (f"{FOLDER}/test_lost_messages.py",),
    ),
    "consumers: lost messages are looked for at the first subscribe, not at the opening": Bug(
        "store/api/store.py", "            self._forget_lost()\n", "            pass\n",
        (f"{FOLDER}/test_lost_messages.py",),
    ),
    "consumers: a damaged new message takes away what was found before it": Bug(
        "store/subscriptions/dispatcher.py", "                is_whole = False\n",
        "                is_whole, batches = False, []\n", (f"{FOLDER}/test_damaged_messages.py",),
    ),
    "consumers: nobody is told of a damaged message beside good ones": Bug(
        "store/subscriptions/dispatcher.py", "        self._failed = failed[0] if failed else None\n",
        "        self._failed = failed[0] if failed and given is None else None\n",
        (f"{FOLDER}/test_damaged_messages.py",),
    ),
    "consumers: a damaged message holds up those that were picked with it": Bug(
        "store/subscriptions/delivery.py", "            if end - begin > 1:\n", "            if False:\n",
        (f"{FOLDER}/test_damaged_messages.py",),
    ),
    "consumers: a message whose acknowledgement fails after a close comes twice": Bug(
        "store/subscriptions/scanner.py", "        self._read_at: dict[int, int] = {}\n",
        "        self._read_at: dict[int, int] = {}\n        self.reached = {}\n",
        (f"{FOLDER}/test_failed_acks.py",),
    ),
    "consumers: a line goes on after a close beside an acknowledgement on its way": Bug(
        "store/subscriptions/state.py", "            self.to_redeliver.clear()\n            self.rebuild_lines()\n",
        "            self.to_redeliver.clear()\n            self._adopt(self.cursor.settings or Settings())\n",
        (f"{FOLDER}/test_failed_acks.py",),
    ),
    "consumers: retention believes an acknowledgement on its way": Bug(
        "store/subscriptions/acknowledging.py",
        "            table.acknowledge_one(row, self._journal.next_offset)\n",
        "            table.acknowledge_one(row, self._journal.next_offset)\n"
        "            state.cursor.queue(queue_id).add(offset)\n",
        (f"{FOLDER}/test_failed_acks.py",),
    ),
    "consumers: a snapshot trims the record of an acknowledgement on its way": Bug(
        "store/subscriptions/state.py", "self.cursor.frozen(), self.table.first_start()\n",
        "self.cursor.frozen(), 1 << 62\n", (f"{FOLDER}/test_failed_acks.py",),
    ),
    "consumers: an interrupted acknowledgement leaves its message with nobody": Bug(
        "store/subscriptions/acknowledging.py", "        self.cut_short += [rows]\n", "        pass\n",
        (f"{FOLDER}/test_interrupts.py::test_the_answer_to_an_acknowledgement_that_was_taken_back_frees_no_line",),
    ),
    "consumers: an acknowledgement on its way is counted as left": Bug(
        "store/subscriptions/backlog.py", "    total -= int(np.count_nonzero(known.is_acked & there))\n", "",
        (f"{FOLDER}/test_failed_acks.py",),
    ),
    "consumers: dead letters go round by three topics": Bug(
        "store/subscriptions/settings.py", "                    left.append(leads_to)\n", "                    pass\n",
        (f"{FOLDER}/test_dead_letters.py",),
    ),
    "consumers: a deadline is cut to whole milliseconds": Bug(
        "store/subscriptions/state.py", "return math.ceil(self.parts.clock.monotonic_s() * 1000) + after_ms",
        "return self.now_ms() + after_ms", (f"{FOLDER}/test_subscription.py",),
    ),
    "consumers: an undone receive takes attempts of messages that it does not give back": Bug(
        "store/subscriptions/state.py", "            self.undo_attempts(self.table.places(rows))",
        "            found = self.table.find(receipts)\n"
        "            self.undo_attempts(self.table.places(found[found >= 0]))",
        (f"{FOLDER}/test_attempts.py",),
    ),
    "consumers: an undo that was interrupted is made for the table alone": Bug(
        "store/subscriptions/state.py",
        "            self.undo_attempts(self.table.places(rows))",
        "            places = self.table.places(rows)\n            self.table.undo_receive(rows, self.now_ms())\n"
        "            self.undo_attempts(places)\n            rows = rows[:0]",
        (f"{FOLDER}/test_attempts.py::test_an_undo_that_is_interrupted_may_be_made_again",),
    ),
    "consumers: a removed message blocks its line": Bug(
        "store/subscriptions/dispatcher.py", "            if removed != self._removed:\n", "            if False:\n",
        (f"{FOLDER}/test_removed_messages.py",),
    ),
    "consumers: a message that lives on as a copy is taken for removed": Bug(
        "store/subscriptions/removed_rows.py", "gone[rows] = ~delays.are_kept(",
        "gone[rows] = True | delays.are_kept(", (f"{FOLDER}/test_removed_messages.py",),
    ),
    "consumers: what a closed object had waits for its time-out": Bug(
        "store/subscriptions/shared.py", "                self.state.leave(owner)\n", "                pass\n",
        (f"{FOLDER}/test_subscription.py",),
    ),
}  # fmt: skip
