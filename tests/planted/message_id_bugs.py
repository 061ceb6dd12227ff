"""Bugs of message ids: what is refused, what is forgotten, and what the log keeps of them."""

from __future__ import annotations

from .plant import Bug

CALLS = "tests/store/ids/test_message_ids.py"
KEPT = "tests/store/ids/test_kept_ids.py"
LARGER = "tests/store/ids/test_larger_windows.py"
SIMULATION = "tests/simulation/test_ids.py"
WINDOW, WINDOWS = "store/topics/id_window.py", "store/topics/id_windows.py"
ON_WAY = "store/log/message_ids.py"

MESSAGE_IDS: dict[str, Bug] = {
    "message ids: a frame with ids is not atomic": Bug(
        "store/log/row_build.py", "is_atomic = bool(ids) or (not plain and are_atomic(requests))",
        "is_atomic = not plain and are_atomic(requests)",
        (f"{KEPT}::test_a_torn_frame_keeps_neither_the_message_nor_its_id",),
    ),
    "message ids: with columns beside it, a frame with ids is not atomic": Bug(
        "store/log/column_build.py", "is_atomic = bool(ids) or are_atomic(requests)",
        "is_atomic = are_atomic(requests)",
        (f"{KEPT}::test_a_torn_frame_keeps_neither_the_message_nor_its_id",),
    ),
    "message ids: after a clock that was set back an opening has another order": Bug(
        WINDOW, "max(now_ms << STAMP_BITS, self._stamp + 1)", "now_ms << STAMP_BITS",
        ("tests/store/ids/test_order_of_ids.py",),
    ),
    "message ids: the record has the offsets of other messages": Bug(
        ON_WAY, "mine = offsets[self.entries]", "mine = offsets[self.entries] * 0",
        (CALLS, KEPT),
    ),
    "message ids: rows of a batch are counted from the frame's beginning": Bug(
        ON_WAY, "rows = [_column(part.rows) + first for", "rows = [_column(part.rows) for",
        (f"{KEPT}::test_batches_that_share_a_frame_have_their_own_offsets",),
    ),
    "message ids: an id that is on its way is stored again": Bug(
        "store/api/identified.py", "            if found is ticket:\n",
        "            if found is ticket or not isinstance(found, int):\n                found = ticket\n",
        (f"{CALLS}::test_threads_with_the_same_ids_store_each_once",),
    ),
    "message ids: they are known for a millisecond too long": Bug(
        WINDOW, "frame.time_ms <= limit_ms", "frame.time_ms < limit_ms",
        (f"{CALLS}::test_an_id_is_forgotten_by_age",), hangs=True,
    ),
    "message ids: the window has one too many": Bug(
        WINDOW, "self._drop(max(len(self) - self._most, ", "self._drop(max(len(self) - self._most - 1, ",
        (f"{CALLS}::test_an_id_is_forgotten_by_number",),
    ),
    "message ids: an opening takes the oldest ones": Bug(
        WINDOW, "        self._drop(len(self) - self._most)\n\n    def mark",
        "        self._frames = deque([_Frame(digests[::-1], self._settled, times_ms[0])])\n"
        "        self._drop(len(self) - self._most)\n\n    def mark",
        (f"{CALLS}::test_an_id_is_forgotten_by_number",),
    ),
    "message ids: an id that failed is never free again": Bug(
        WINDOW,
        "                if self._known.get(digest) is ids:\n                    del self._known[digest]\n",
        "                pass\n",
        (f"{CALLS}::test_an_id_that_found_no_space_is_free_again",),
    ),
    "message ids: what found no room in the buffer keeps its id": Bug(
        ON_WAY, "        is_in = not isinstance(error, StoreError) and (",
        "        is_in = isinstance(error, StoreError) or (",
        (f"{CALLS}::test_an_id_whose_append_found_no_room_is_free_again",), hangs=True,
    ),
    "message ids: waiting appends do not hear of a failure": Bug(
        "store/log/request.py", "        fail_ids(requests, error)  # first: the answers drop them\n", "        pass\n",
        (f"{CALLS}::test_a_second_append_fails_as_the_first_one_does",), hangs=True,
    ),
    "message ids: a cancelled append keeps its id": Bug(
        "store/api/leaving.py", "    if request.future.cancelled() and queue.withdraw(request) is not None:\n"
        "        fail_ids([request], None)", "    if request.future.cancelled():\n        queue.withdraw(request)",
        (f"{CALLS}::test_a_cancelled_append_gives_its_id_back_or_is_stored",), hangs=True,
    ),
    "message ids: a deleted topic's ids are remembered": Bug(
        "store/api/trimming.py", "        self._windows.forget(name, settled)\n", "",
        (f"{CALLS}::test_a_deleted_topic_forgets_its_ids",),
    ),
    "message ids: a deleted topic's ids stay in the log": Bug(
        "store/api/trimming.py", "self._write([*changes, *of_ids])", "self._write(changes)",
        (f"{CALLS}::test_a_deleted_topic_forgets_its_ids",),
    ),
    "message ids: retention takes them": Bug(
        WINDOWS, "        if digests:\n            self._hidden", "        if False:\n            self._hidden",
        (f"{KEPT}::test_retention_keeps_the_ids_of_the_window",),
    ),
    "message ids: retention keeps those that are forgotten": Bug(
        WINDOWS, "known = window.has_each(ids.digests, places)", "known = [True] * len(places)",
        (f"{KEPT}::test_retention_does_not_keep_ids_that_the_topic_has_forgotten",),
    ),
    "message ids: kept ones count as the newest": Bug(
        "store/format/message_ids.py", 'own = np.frombuffer(data, "<i8", count, at + 12 * count) if',
        "own = np.full(count, 1 << 60, np.int64) if",
        (f"{KEPT}::test_kept_ids_leave_the_window_in_their_order",),
    ),
    "message ids: old records are never trimmed": Bug(
        "store/api/identified.py", "        if window.has_old_records:\n", "        if False:\n",
        (f"{KEPT}::test_records_that_left_the_window_are_trimmed",),
    ),
    "message ids: records are trimmed that the window needs": Bug(
        WINDOW, "while self._marks and self._marks[0].ids <= self._gone:", "while self._marks:",
        (f"{KEPT}::test_records_that_left_the_window_are_trimmed",),
    ),
    "message ids: an opening reads all records": Bug(
        WINDOWS, "while begin > first and count < most:", "while begin > first:",
        (f"{KEPT}::test_an_opening_reads_the_window_and_not_all_records",),
    ),
    "message ids: a batch's later row with an id is the stored one": Bug(
        "store/api/id_batch.py", "if row not in self._same", "if row not in self._same.values()",
        (f"{CALLS}::test_a_batch_stores_the_first_of_each_id_and_answers_all",),
    ),
    "message ids: a transaction's repeats are stored": Bug(
        "store/subscriptions/committing.py", "self._messages = self._all.only(self.ids.stored)",
        "self._messages = self._all.only(range(len(self._all.names)))",
        (f"{CALLS}::test_a_transaction_leaves_repeats_out_and_stores_the_rest",),
    ),
    "message ids: a frame gets as many messages as without ids": Bug(
        WINDOWS, "max(MOST_WITH_IDS, MAX_FRAME_MESSAGES - len(self._topics))", "MAX_FRAME_MESSAGES",
        (f"{CALLS}::test_a_frame_has_room_for_a_record_of_each_topic",),
    ),
    "message ids: a ticket says that a message is no repeat": Bug(
        "store/api/repeats.py", "        self._is_repeat = True\n", "        self._is_repeat = False\n",
        (f"{CALLS}::test_a_ticket_says_whether_its_id_is_a_repeat",),
    ),
    "message ids: an opening reads those of the first lane alone": Bug(
        WINDOWS, "for lane in self._hidden.lanes]", "for lane in self._hidden.lanes[:1]]",
        (f"{CALLS}::test_every_call_answers_an_id_that_any_call_has_stored",),
    ),
    "message ids: of two that give ids back at once the last one has the outcome": Bug(
        WINDOW, "            promise.answer(ids.error)", "            promise.answer(error)",
        (f"{CALLS}::test_threads_that_fail_ids_at_once_give_one_outcome",),
    ),
    "message ids: a thread that was woken is woken again": Bug(
        ON_WAY, "        with suppress(RuntimeError):  # the lock", "        with suppress(KeyError):  # the lock",
        (f"{CALLS}::test_threads_that_fail_ids_at_once_give_one_outcome",),
    ),
    "message ids: a larger window brings back what the log has still": Bug(
        "store/api/topic_calls.py", "        self._windows.forget_before(name, settings)\n", "",
        (LARGER,),
    ),
    "message ids: a larger window takes ids that a frame is about to give": Bug(
        WINDOWS, "            barrier.result()\n", "",
        (f"{LARGER}::test_a_record_that_can_be_read_before_its_ids_are_durable_is_kept",),
    ),
    "message ids: a batch that was cut has the places of another one": Bug(
        ON_WAY, "self.entries = slice(firsts[0] + first.rows.start, firsts[0] + first.rows.stop)",
        "self.entries = slice(first.rows.start, first.rows.stop)",
        ("tests/store/ids/test_large_batches.py::test_a_batch_after_messages_without_ids_has_its_own_places",),
    ),
    "message ids: an id of a large batch is never found durable": Bug(
        WINDOW, "    return found if place is None else place\n", "    return found\n",
        ("tests/store/ids/test_large_batches.py",), hangs=True,
    ),
    "message ids: tickets are kept where a large batch shares their frame": Bug(
        WINDOW, "bool(ids.parts) and ids.digests is ids.parts[0].digests", "bool(ids.parts)",
        ("tests/store/ids/test_large_batches.py",),
    ),
    "message ids: a part of a frame leaves twice": Bug(
        WINDOW, "begin = self._gone - end", "begin = -len(digests)",
        ("tests/store/ids/test_large_batches.py",),
    ),
    "message ids: a crash leaves an id without its message": Bug(
        ON_WAY, "self.record[:] = pack_seen(self.digests, self.queue_ids, mine, stamp)",
        "self.record[:] = pack_seen(self.digests, self.queue_ids, mine + 1, stamp)",
        (SIMULATION,),
    ),
    "message ids: what retention looked up of a batch stays in memory": Bug(
        WINDOW, "                one.frame.forget_places()\n", "                pass\n",
        (f"{KEPT}::test_retention_keeps_no_table_of_the_batches_whose_ids_it_writes_again",),
    ),
}  # fmt: skip
