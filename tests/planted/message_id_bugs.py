"""Bugs of message ids: what is refused, what is forgotten, and what the log keeps of them."""

from __future__ import annotations

from .plant import Bug

CALLS = "tests/store/ids/test_message_ids.py"
KEPT = "tests/store/ids/test_kept_ids.py"
LARGER = "tests/store/ids/test_larger_windows.py"
SIMULATION = "tests/simulation/test_ids.py"
WINDOW, WINDOWS = "store/topics/id_window.py", "store/topics/id_windows.py"
ON_WAY = "store/log/message_ids.py"
FRAMES = "store/log/frame_ids.py"
DURABLE = "store/topics/durable_ids.py"
REPEATS = "tests/store/ids/test_submitted_repeats.py"

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
        FRAMES, "self.offsets = offsets[entries]", "self.offsets = np.asarray(offsets)[entries] * 0",
        (CALLS, KEPT),
    ),
    "message ids: rows of a batch are counted from the frame's beginning": Bug(
        FRAMES, "rows = [_column(part.rows) + first for", "rows = [_column(part.rows) for",
        (f"{KEPT}::test_batches_that_share_a_frame_have_their_own_offsets",),
    ),
    "message ids: an id that is on its way is stored again": Bug(
        "store/api/identified.py", "on_way = window.note(digest, ticket)", "on_way = ticket",
        (f"{CALLS}::test_threads_with_the_same_ids_store_each_once",),
    ),
    "message ids: they are known for a millisecond too long": Bug(
        WINDOW, "self._frames[0].time_ms > limit_ms", "self._frames[0].time_ms >= limit_ms",
        (f"{CALLS}::test_an_id_is_forgotten_by_age",), hangs=True,
    ),
    "message ids: the window has one too many": Bug(
        WINDOW, "self._drop(max(len(self) - self._most, ", "self._drop(max(len(self) - self._most - 1, ",
        (f"{CALLS}::test_an_id_is_forgotten_by_number",),
    ),
    "message ids: an opening takes the oldest ones": Bug(
        WINDOW, "        self._drop(len(self) - self._most)\n\n    def mark",
        "        self._durable.end -= max(0, len(self) - self._most)\n\n    def mark",
        (f"{CALLS}::test_an_id_is_forgotten_by_number",),
    ),
    "message ids: an id that failed is never free again": Bug(
        WINDOW,
        "                if self._on_way.get(digest) is ids:\n                    del self._on_way[digest]\n",
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
        WINDOWS, "window.has_each(ids.digests, ids.queue_ids, ids.offsets)", "[True] * len(ids.digests)",
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
        WINDOW, "while self._marks and self._marks[0].ids <= self._durable.begin:", "while self._marks:",
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
        FRAMES, "entries = slice(firsts[0] + first.rows.start, firsts[0] + first.rows.stop)",
        "entries = slice(first.rows.start, first.rows.stop)",
        ("tests/store/ids/test_large_batches.py::test_a_batch_after_messages_without_ids_has_its_own_places",),
    ),
    "message ids: a batch does not ask what is durable": Bug(
        WINDOW, "if self._durable.offsets_of(ids.digests) is not None:", "if False:",
        ("tests/store/ids/test_large_batches.py",),
    ),
    "message ids: what is durable stays on its way": Bug(
        WINDOW, "            deque(map(self._on_way.pop, ids.digests, repeat(None)), maxlen=0)\n", "",
        ("tests/store/ids/test_large_batches.py",),
    ),
    "message ids: submitted messages do not ask what is durable": Bug(
        "store/log/flusher.py", "            if self.queue.has_ids:\n", "            if False:\n",
        (f"{CALLS}::test_every_call_answers_an_id_that_any_call_has_stored", REPEATS),
    ),
    "message ids: repeats keep their room in the publish buffer": Bug(
        "store/log/flusher.py", "            self.queue.release(cost, len(repeats))\n", "            del cost\n",
        (f"{REPEATS}::test_of_messages_that_are_taken_together_only_the_new_ones_are_stored",),
    ),
    "message ids: a repeat that was submitted stays on its way": Bug(
        ON_WAY, "        self.target.table.free(self)\n        self.offset, ", "        self.offset, ",
        (f"{REPEATS}::test_of_messages_that_are_taken_together_only_the_new_ones_are_stored",),
    ),
    "message ids: a repeat that finds no room in the publish buffer is refused": Bug(
        "store/api/identified.py", "            if isinstance(error, PublishBufferFull):",
        "            if False:",
        (f"{REPEATS}::test_a_repeat_that_finds_no_room_in_the_publish_buffer_is_answered",), hangs=True,
    ),
    "message ids: of several ids of a chain the newest comes first": Bug(
        DURABLE, "newest[chains[::-1]] = numbers[::-1]", "newest[chains] = numbers",
        ("tests/store/ids/test_durable_ids.py",), hangs=True,
    ),
    "message ids: ids that begin alike are one": Bug(
        DURABLE, "is_it = self._rests[there] == rests[like]", "is_it = there >= 0",
        ("tests/store/ids/test_durable_ids.py",),
    ),
    "message ids: what an interrupt has cut off stays in its chains": Bug(
        DURABLE, "if not self._is_whole or needed >", "if needed >",
        ("tests/store/ids/test_durable_ids.py",), hangs=True,
    ),
    "message ids: a batch takes ids that others have on their way": Bug(
        WINDOW, "if there & asked:", "if False:",
        ("tests/store/ids/test_large_batches.py::test_a_batch_of_which_another_append_has_an_id_notes_none_of_its_own",),
    ),
    "message ids: a crash leaves an id without its message": Bug(
        FRAMES, "self.record[:] = pack_seen(self.packed, self.queue_ids, self.offsets, stamp)",
        "self.record[:] = pack_seen(self.packed, self.queue_ids, [one + 1 for one in self.offsets], stamp)",
        (SIMULATION,),
    ),
}  # fmt: skip
