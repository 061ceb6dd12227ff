"""Bugs of subscriptions: of cursors, receipts, order and compaction."""

from __future__ import annotations

from .plant import Bug

FOLDER = "tests/store/subscriptions"
CRASHES = ("tests/simulation/consumers/test_run.py::test_no_crash_loses_repeats_or_hastens_a_delivery",)
SUBSCRIPTION = f"{FOLDER}/test_subscription.py"

SUBSCRIPTIONS: dict[str, Bug] = {
    "subscriptions: an acknowledgement is not awaited": Bug(
        "store/subscriptions/group_commit.py", "            self._wait(ticket)\n", "",
        (f"{FOLDER}/test_failed_acks.py", f"{FOLDER}/test_group_commit.py", *CRASHES),
    ),
    "subscriptions: a record that is handed over twice has no bytes the second time": Bug(
        "store/subscriptions/group_commit.py", "        self._answered(self, error)\n        self._done = True\n",
        "        self._answered(self, error)\n        super().answer(error)\n", (f"{FOLDER}/test_group_commit.py",),
    ),
    "subscriptions: nobody hears of a submitted acknowledgement that was refused": Bug(
        "store/subscriptions/acknowledging.py", "                self.settle(rows, error)\n                raise\n",
        "                raise\n", (f"{FOLDER}/test_group_commit.py",),
    ),
    "subscriptions: a loop is not told of its coroutines' record": Bug(
        "store/subscriptions/group_commit.py", "    for loop in {future.get_loop() for future in futures}:\n",
        "    for loop in set():\n", (f"{FOLDER}/test_coroutines.py",), hangs=True,
    ),
    "subscriptions: a cursor that is compacted meanwhile is read to its old end": Bug(
        "store/subscriptions/journal.py",
        "                at, end = max(at + 1, error.first), reader.bounds(stream)[1]\n",
        "                at = max(at + 1, error.first)\n",
        (f"{FOLDER}/test_retention.py::test_a_cursor_that_is_compacted_while_it_is_read_is_read_whole",),
    ),
    "subscriptions: a refused record of several acknowledgements is taken back for one": Bug(
        "store/subscriptions/acknowledging.py", "state.now_ms()) for row in rows])",
        "state.now_ms()) for row in rows[:1]])", (f"{FOLDER}/test_group_commit.py",),
    ),
    "subscriptions: a snapshot trims itself": Bug(
        "store/subscriptions/journal.py", "covered = self._parts.reads.reader.bounds(stream)[1]\n",
        "covered = self._parts.reads.reader.bounds(stream)[1] + 1\n", CRASHES,
    ),
    "subscriptions: records are trimmed before the snapshot is durable": Bug(
        "store/subscriptions/journal.py", "        self._parts.hidden.append(stream, records)\n        with",
        "        self._parts.trim(stream, covered)\n        self._parts.hidden.append(stream, records)\n        with",
        CRASHES,
    ),
    "subscriptions: a record of an earlier era counts": Bug(
        "store/subscriptions/cursor.py", "            if era == acked.era:\n", "            if era <= acked.era:\n",
        (f"{FOLDER}/test_acked.py",),
    ),
    "subscriptions: a deleted one's records count for the next one": Bug(
        "store/subscriptions/cursor.py", "        if record.life < self.life:\n            return\n", "",
        (f"{FOLDER}/test_acked.py",),
    ),
    "subscriptions: half a state counts": Bug(
        "store/subscriptions/cursor.py", "        if len(self._bodies) < record.parts:\n",
        "        if len(self._bodies) < record.parts // 2:\n", (f"{FOLDER}/test_acked.py",),
    ),
    "subscriptions: a consumer that was called does not call the next one": Bug(
        "store/subscriptions/receiving.py", "            call.has_more = self._has_more()\n",
        "            call.has_more = False\n",
        (f"{FOLDER}/test_calling.py::test_many_messages_of_one_append_wake_as_many_as_they_need",), hangs=True,
    ),
    "subscriptions: one who leaves with a call takes it along": Bug(
        "store/subscriptions/calling.py", "        if has_more or self._asked:\n", "        if False:\n",
        (f"{FOLDER}/test_calling.py::test_one_who_was_called_and_goes_calls_the_next",), hangs=True,
    ),
    "subscriptions: all who wait are asked whether there is news": Bug(
        "store/read/waiting.py", "_look_at, purgatory, names, one_a_group=True)",
        "_look_at, purgatory, names, one_a_group=False)",
        (f"{FOLDER}/test_calling.py::test_one_of_those_who_wait_is_asked_whether_a_message_is_news",),
    ),
    "subscriptions: nobody is called for what times out": Bug(
        "store/subscriptions/calling.py",
        "            self.wakes_ms = NEVER\n        self._notify()  # also if nobody waits yet",
        "            self.wakes_ms = NEVER\n        # also if nobody waits yet",
        (f"{FOLDER}/test_calling.py::test_a_deadline_that_comes_while_all_sleep_wakes_one",), hangs=True,
    ),
    "subscriptions: a time that comes before a consumer sleeps tells nobody": Bug(
        "store/subscriptions/calling.py",
        "            self.wakes_ms = NEVER\n        self._notify()  # also if nobody waits yet",
        "            self.wakes_ms = NEVER\n        self._readers.look_at([self._name])  # also if nobody waits yet",
        (f"{FOLDER}/test_calling.py::test_a_deadline_that_comes_just_before_a_consumer_sleeps_is_not_missed",),
    ),
    "subscriptions: another caller lets a line go on and calls nobody": Bug(
        "store/subscriptions/state.py", "        if self.order is None:\n            self.count_stored()",
        "        if True:\n            self.count_stored()",
        (f"{FOLDER}/test_calling.py::"
         "test_an_acknowledgement_that_others_meet_before_it_settles_wakes_one_of_its_line",), hangs=True,
    ),
    "subscriptions: a message that is kept for less time wakes nobody": Bug(
        "store/subscriptions/state.py", "        self.calling.gives_out(deadline_ms)\n", "",
        (f"{FOLDER}/test_calling.py::test_a_message_that_is_kept_for_less_time_wakes_one_when_that_is_over",),
        hangs=True,
    ),
    "subscriptions: a consumer that is about to sleep misses what is given out meanwhile": Bug(
        "store/subscriptions/receiving.py", "        calling.keep_watch(self._again_ms())\n", "",
        (f"{FOLDER}/test_calling.py::"
         "test_what_is_given_out_just_before_a_consumer_sleeps_wakes_it_when_it_times_out",), hangs=True,
    ),
    "subscriptions: a queue with news is not looked at": Bug(
        "store/subscriptions/news.py", "                topic.note(stream.queue_id, self._version)\n",
        "                topic.newest = self._version\n", (f"{FOLDER}/test_news.py",),
    ),
    "subscriptions: segments that were never open are no news": Bug(
        "store/subscriptions/news.py", "        is_lost = newest != seen or lane.index not in self._seen\n",
        "        is_lost = False\n", (f"{FOLDER}/test_news.py",),
    ),
    "subscriptions: what was read ahead is not given back": Bug(
        "store/subscriptions/read_ahead.py", "            if other.give_back():\n", "            if False:\n",
        (f"{FOLDER}/test_read_ahead.py",),
    ),
    "subscriptions: what a quick look has read is not counted": Bug(
        "store/subscriptions/dispatcher.py", "            if self._scanner.held_bytes > held_bytes:\n",
        "            if False:\n", (f"{FOLDER}/test_read_ahead.py",),
    ),
    "subscriptions: a message that has just come waits for a long look": Bug(
        "store/subscriptions/scanner.py", "            if not may_read or not self._read_fresh():\n",
        "            if True:\n", (f"{FOLDER}/test_fresh.py::test_most_lone_messages_need_no_long_look",),
    ),
    "subscriptions: a receipt is good after its message went to another": Bug(
        "store/subscriptions/dispatcher.py",
        "                state.table.remove(rows)\n", "",
        (f"{SUBSCRIPTION}::test_a_late_receipt_is_good_until_the_message_is_given_to_another",),
    ),
    "subscriptions: the mark passes a message that nobody acknowledged": Bug(
        "store/subscriptions/cursor.py", "        return bad\n", "        return bad + 1\n",
        (f"{FOLDER}/test_acked.py",),
    ),
    "subscriptions: a seek leaves the receipts of its queues good": Bug(
        "store/subscriptions/state.py", "            self.table.remove(self.table.rows_of(list(offsets)))\n", "",
        (f"{SUBSCRIPTION}::test_seeking_makes_receipts_stale_and_brings_back_what_was_acknowledged",),
    ),
    "subscriptions: retention takes a cursor's records": Bug(
        "store/subscriptions/registry.py", "                shared = self._shared(*names, for_retention=True)\n"
        "                shared.move_records()\n                self._forget_deleted(shared)\n"
        "                if begin + count > stream.low:\n                    return False\n", "                pass\n",
        (f"{FOLDER}/test_retention.py",),
    ),
    "subscriptions: a message is handed over before its attempt is durable": Bug(
        "store/subscriptions/subscription.py", "        if batch is not None and noted:\n", "        if False:\n",
        (f"{FOLDER}/test_attempts.py::test_a_number_whose_write_fails_counts_for_nothing",),
    ),
    "subscriptions: a snapshot has no attempts": Bug(
        "store/subscriptions/cursor.py", "        return state + pack_attempts(self.life, tried, limit_bytes)\n",
        "        return state\n",
        (f"{FOLDER}/test_attempts.py::test_attempts_are_in_the_snapshot_and_begin_anew_behind_a_seek",),
    ),
    "subscriptions: a late acknowledgement of a deleted one counts for the next one": Bug(
        "store/subscriptions/registry.py", "                self._lives[key] = state.cursor.life\n", "",
        (f"{FOLDER}/test_deleting.py",),
    ),
    "subscriptions: what a filter left out before a seek counts behind it": Bug(
        "store/subscriptions/state.py", "            for queue_id in offsets:\n"
        "                self.left_out.pop(queue_id, None)\n", "            for one in self.left_out.values():\n"
        "                self.left_out = {at: one._replace(era=one.era + 1) for at in self.left_out}\n",
        (f"{FOLDER}/test_left_out.py",),
    ),
    "subscriptions: a backlog has cancelled messages": Bug(
        "store/subscriptions/backlog.py", " - left.cancelled\n", "\n", (f"{FOLDER}/test_backlog.py",),
    ),
    "subscriptions: a snapshot that fails fails the acknowledgement before it": Bug(
        "store/subscriptions/state.py",
        "with suppress(StoreError, OSError):  # they are durable", "if True:  #",
        (f"{FOLDER}/test_beside_records.py",),
    ),
    "subscriptions: damaged changes hold no segment": Bug(
        "store/delayed/keeping.py", " or self._is_held_by_damage(lane, oldest):\n", ":\n",
        (f"{FOLDER}/test_damage.py",),
    ),
    "subscriptions: what an interrupt left half done is not listed anew": Bug(
        "store/subscriptions/in_flight.py",
        "        take(self.receipts(rows))\n        states[rows] = due_states\n",
        "        states[rows] = due_states\n        take(self.receipts(rows))\n",
        (f"{FOLDER}/test_in_flight.py",),
    ),
    "subscriptions: retention rests from a segment that has messages of users": Bug(
        "store/log/retention_rounds.py", " and not self._has_users(lane, at)\n", "\n",
        (f"{FOLDER}/test_retention_rounds.py",),
    ),
    "subscriptions: retention begins a lap behind each other": Bug(
        "store/log/retention_rounds.py", "        return not has_grown and", "        return False and",
        (f"{FOLDER}/test_retention_rounds.py::test_retention_ends_where_only_cursors_are_left",),
    ),
}  # fmt: skip
