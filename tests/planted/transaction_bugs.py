"""Bugs of transactions: an ATOMIC frame, and acknowledgements that share its outcome."""

from __future__ import annotations

from .plant import Bug

FRAMES = "tests/store/test_transactions.py"
STORED = "tests/store/rounds/test_stored.py"
ERRORS = "tests/store/rounds/test_errors.py"
CRASHES = "tests/store/rounds/test_crashes.py"
DAMAGE = "tests/store/rounds/test_damage.py"
LARGE = "tests/store/rounds/test_large.py"
LARGE_CRASHES = "tests/store/rounds/test_large_crashes.py"
READERS = "tests/store/rounds/test_readers.py"
IDS = "tests/store/ids/test_large_batches.py"
ACKS = "tests/store/subscriptions/test_transactions.py"
SMALL = "tests/store/test_small_transactions.py"

TRANSACTIONS: dict[str, Bug] = {
    "transactions: a torn atomic frame keeps its whole messages": Bug(
        "store/segment/checksums.py", "return 0 if frame.header.flags & ATOMIC else index", "return index",
        (f"{FRAMES}::test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole",),
    ),
    "transactions: verify keeps the whole messages of a torn atomic frame": Bug(
        "store/verify/frames.py", "whole = 0 if header.flags & ATOMIC else int(bad[0])", "whole = int(bad[0])",
        (f"{FRAMES}::test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole",),
    ),
    "transactions: what an opening has cut comes back in a repair": Bug(
        "store/recovery/segment_scan.py", "following.messages_before - self._before == entries", "entries < 0",
        (f"{FRAMES}::test_what_an_opening_has_cut_stays_away_when_its_seal_and_footer_are_lost",),
    ),
    "transactions: the flag is left out of the frame's head": Bug(
        "store/log/row_build.py", "flags = columns.flags | ATOMIC if is_atomic else columns.flags",
        "flags = columns.flags",
        (f"{FRAMES}::test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole",),
    ),
    "transactions: an atomic frame is shown message by message": Bug(
        "store/log/row_build.py", "ends = [lane.tail] * len(sizes) if is_atomic else", "ends =",
        (f"{FRAMES}::test_of_a_frame_that_is_durable_in_part_nothing_is_shown_answered_or_vouched_for",),
    ),
    "transactions: with columns beside it, a frame is not atomic": Bug(
        "store/log/column_build.py", "is_atomic = bool(ids) or are_atomic(requests)", "is_atomic = bool(ids)",
        (f"{FRAMES}::test_a_transaction_beside_columns_is_in_an_atomic_frame",),
    ),
    "transactions: one that has users' messages takes the reserve": Bug(
        "store/subscriptions/committing.py",
        "self._appender.atomic_group(streams, datas, extras, settle, ids, blocks)",
        "self._appender.atomic_group(streams[::-1], datas[::-1], extras[::-1], settle, ids, blocks)",
        (f"{ACKS}::test_on_a_full_disk_acknowledgements_alone_are_stored_and_bills_are_not",),
    ),
    "transactions: a stale receipt, and the append stays": Bug(
        "store/subscriptions/joint_acks.py",
        "            if missing:\n                raise stale(state.name, missing)\n", "",
        (f"{ACKS}::test_with_a_stale_receipt_nothing_is_stored_and_the_others_keep_their_deadlines",),
    ),
    "transactions: the first subscription is marked before the second is asked": Bug(
        "store/subscriptions/committing.py", "            if len(joints) > 1:\n", "            if not joints:\n",
        (f"{ACKS}::test_with_a_stale_receipt_nothing_is_stored_and_the_others_keep_their_deadlines",),
    ),
    "transactions: an interrupt gives messages back whose record is on its way": Bug(
        "store/subscriptions/joint_acks.py",
        "if self.request is None or not self.request.is_accepted:", "if True:",
        (f"{ACKS}::test_an_interrupted_commit_is_stored_with_its_acknowledgements_or_leaves_none",),
    ),
    "transactions: a commit that is refused keeps its messages": Bug(
        "store/subscriptions/committing.py",
        "            self._settle(error)\n            raise\n", "            raise\n",
        (f"{ACKS}::test_a_full_publish_buffer_or_a_poisoned_store_gives_the_messages_back",),
    ),
    "transactions: a dead letter is appended, and then acknowledged": Bug(
        "store/subscriptions/moving.py",
        "        if committing.fits:\n", "        if committing.fits and not batches:\n",
        ("tests/store/subscriptions/test_dead_letters.py::test_no_crash_makes_a_dead_letter_twice_or_loses_one",),
    ),
    "large: what is left of a part proves it": Bug(
        "store/segment/round_parts.py", "(frame for frame in frames if not frame.header.flags & REST)", "iter(frames)",
        (f"{LARGE_CRASHES}::test_one_that_lacks_a_frame_is_cut_as_a_whole",),
    ),
    "large: recovery looks at the first frame of a part alone": Bug(
        "store/recovery/segment_scan.py",
        "end = end_of_part(found.frame, self._scanner) if found.is_whole else None",
        "end = self._scanner if found.is_whole else None",
        (f"{LARGE_CRASHES}::test_one_that_lacks_a_frame_is_cut_as_a_whole",),
    ),
    "large: other lanes look at the first frame of a part alone": Bug(
        "store/segment/round_parts.py", "                    end = end_of_part(frame, scanner)\n",
        "                    end = scanner\n",
        (f"{LARGE_CRASHES}::test_one_that_lacks_a_frame_is_cut_as_a_whole",),
    ),
    "large: a torn frame counts in its part": Bug(
        "store/segment/round_parts.py", "        if found is None or not found.is_whole or not",
        "        if found is None or not",
        (f"{LARGE_CRASHES}::test_one_that_lacks_a_frame_is_cut_as_a_whole",),
    ),
    "large: verify looks at the first frame of a part alone": Bug(
        "store/verify/frames.py", "end_of_part(found.frame, self.scanner) if found.is_whole else None",
        "self.scanner if found.is_whole else None",
        (f"{LARGE_CRASHES}::test_one_that_lacks_a_frame_is_cut_as_a_whole",),
    ),
    "large: inspect looks at the first frame of a part alone": Bug(
        "store/verify/inspect.py", "end_of_part(frame, scanner) if is_whole else None", "scanner if is_whole else None",
        (f"{LARGE_CRASHES}::test_one_that_lacks_a_frame_is_cut_as_a_whole",),
    ),
    "large: a log ends inside a part that another lane proves": Bug(
        "store/recovery/segment_scan.py", "(self._part_begin is None and not self._durable_beyond(begin))",
        "not self._durable_beyond(begin)",
        (f"{LARGE_CRASHES}::test_a_frame_of_one_that_was_durable_is_missed_if_another_lane_has_gone_on",),
    ),
    "large: a repair goes on with what is left of a part that never counted": Bug(
        "store/recovery/segment_scan.py", "        return self._durable_beyond(header.position)\n\n    def _is_end",
        "        return True\n\n    def _is_end",
        (f"{LARGE_CRASHES}::test_a_repair_before_one_that_lacks_its_first_frame_does_not_go_on_with_the_rest_of_it",),
    ),
    "large: a commit waits for one id of others at a time": Bug(
        "store/subscriptions/joint_ids.py",
        "                self._look(window, row, digest, busy)\n                continue\n",
        "                break\n", ("tests/store/ids/test_busy_ids.py",),
    ),
    "large: a commit looks again at ids whose messages are there": Bug(
        "store/subscriptions/joint_ids.py", "            if row in self._found:\n                continue\n", "",
        ("tests/store/ids/test_busy_ids.py",),
    ),
    "large: a repair gives up the rest of a part that another lane proves": Bug(
        "store/recovery/segment_scan.py", "return True  # it is of the part that is gone through, which counts", "pass",
        (f"{LARGE_CRASHES}::test_a_repair_keeps_the_rest_of_a_part_that_only_another_lane_proves",),
    ),
    "large: damage of a later frame of a part is a torn tail": Bug(
        "store/recovery/segment_scan.py", "header.flags & REST or self._durable_beyond(position)",
        "self._durable_beyond(position)",
        (f"{LARGE_CRASHES}::test_damage_in_one_that_was_durable_is_reported_and_a_repair_keeps_the_rest",),
    ),
    "large: a frame is shown when it is written": Bug(
        "store/log/at_once.py", "            if not lane.under_way.is_holding:  # else this is not the first frame\n",
        "            if True:\n",
        (f"{LARGE}::test_readers_see_all_of_it_at_one_step",),
    ),
    "large: the ring has no room for the next frame": Bug(
        "store/log/round_part.py", "                self._once.write_ahead()\n", "                pass\n",
        (f"{LARGE}::test_one_that_is_larger_than_the_ring_and_a_segment_is_stored",),
    ),
    "large: a segment has room for the first frame alone": Bug(
        "store/log/round_part.py", "most = sum(self._bounds) +", "most = self._bounds[0] +",
        (f"{LARGE}::test_one_that_is_larger_than_the_ring_and_a_segment_is_stored",),
    ),
    "large: the ids of all blocks are those of one": Bug(
        "store/subscriptions/joint_ids.py", "key = target, blocks[row] if blocks else 0", "key = target, 0",
        (f"{LARGE}::test_messages_with_ids_are_stored_once",),
    ),
    "large: messages that were left out move the blocks of the others": Bug(
        "store/subscriptions/committing.py", "[self._all_blocks[row] for row in self.ids.stored]",
        "self._all_blocks[: len(self.ids.stored)]",
        (f"{LARGE}::test_messages_with_ids_are_stored_once",),
    ),
    "large: the last acknowledgements have no record": Bug(
        "store/subscriptions/joint_acks.py", "for at in range(0, len(rows), RECORD_ACKS)",
        "for at in range(0, max(1, len(rows) - RECORD_ACKS), RECORD_ACKS)",
        (f"{LARGE}::test_acknowledgements_of_several_records_go_with_it",),
    ),
    "large: a reader without a writer shows a part without its end": Bug(
        "store/live/tail.py", " and not last[-1].header.flags & MORE\n", "\n",
        (f"{LARGE_CRASHES}::test_a_reader_without_a_writer_shows_no_part_without_its_end",),
    ),
    "rounds: recovery forgets the cut": Bug(
        "store/segment/round_parts.py",
        "        if Found.LACKING in states and Found.PROVED not in states:\n            return True\n", "",
        (f"{CRASHES}::test_a_round_that_lacks_a_part_is_cut_in_all_lanes",),
    ),
    "rounds: one that was complete is cut": Bug(
        "store/segment/round_parts.py", "state = Found.THERE if", "state = Found.LACKING if",
        (f"{CRASHES}::test_a_round_that_is_whole_stays",),
    ),
    "rounds: damage that hides a part cuts the others": Bug(
        "store/segment/round_parts.py",
        "return Found.LACKING if next(later, None) is None else Found.PROVED, place, 0",
        "return Found.LACKING if next(later, None) is None else Found.LACKING, place, 0",
        (f"{DAMAGE}::test_damage_that_hides_a_part_is_reported_and_nothing_else_is_cut",),
    ),
    "rounds: a lane that was cut and sealed has its part": Bug(
        "store/segment/round_parts.py", "Found.LACKING if end <= place.position else beyond", "beyond",
        (f"{CRASHES}::test_a_second_crash_between_two_lanes_comes_to_the_same",),
    ),
    "rounds: another lane's file in the place of a part cuts the others": Bug(
        "store/segment/round_parts.py", "if file.is_foreign or file.is_cut:", "if file.is_cut:",
        (f"{DAMAGE}::test_a_file_of_another_lane_in_the_place_of_a_part_cuts_nothing_in_the_others",),
    ),
    "rounds: a damaged part beside a damaged seal record cuts the others": Bug(
        "store/segment/round_parts.py", "            if file.trace and scanner.is_like_ours(place.position):\n",
        "            if False:\n",
        (f"{DAMAGE}::test_a_damaged_part_of_a_lane_with_a_damaged_seal_record_is_a_loss_of_that_lane_alone",),
    ),
    "rounds: a part that lacks wins over a lane that has gone on": Bug(
        "store/segment/round_parts.py", "        if Found.LACKING in states and Found.PROVED not in states:\n",
        "        if Found.LACKING in states:\n",
        (f"{DAMAGE}::test_damage_of_the_last_part_of_a_lane_is_reported_if_another_lane_has_gone_on",),
    ),
    "rounds: damage of a part is a torn tail": Bug(
        "store/recovery/segment_scan.py",
        "            self._durable_beyond(header.position) or self._rounds.is_proved(found.frame)\n",
        "            self._durable_beyond(header.position)\n",
        (f"{DAMAGE}::test_damage_of_the_last_part_of_a_lane_is_reported_if_another_lane_has_gone_on",),
    ),
    "rounds: damage that hides a place proves that the round was complete": Bug(
        "store/segment/round_parts.py", "found.append((Found.HIDDEN, place, 0))",
        "found.append((Found.PROVED, place, 0))",
        (f"{DAMAGE}::test_a_lane_that_cannot_be_read_proves_nothing",),
    ),
    "rounds: a torn part keeps its head": Bug(
        "store/recovery/segment_scan.py",
        "        self._scanner.position, self._scanner.chain = header.position, header.chain\n"
        "        self.is_torn = True\n",
        "        self._scanner.position = header.end\n        self.is_torn = True\n",
        (f"{CRASHES}::test_a_round_that_lacks_a_part_is_cut_in_all_lanes",),
    ),
    "rounds: verify counts a part that is cut": Bug(
        "store/verify/frames.py", "            elif self._ends_before(found):\n", "            elif False:\n",
        (f"{CRASHES}::test_a_round_that_lacks_a_part_is_cut_in_all_lanes",),
    ),
    "rounds: inspect counts a part that is cut": Bug(
        "store/verify/inspect.py", "        return rounds.is_lacking(frame, end)\n", "        return False\n",
        (f"{CRASHES}::test_a_round_that_lacks_a_part_is_cut_in_all_lanes",),
    ),
    "rounds: a reader without a writer asks no other lane": Bug(
        "store/live/lane.py", "or self._rounds.is_proved(frame)", "or False",
        (f"{READERS}::test_a_reader_without_a_writer_sees_a_whole_round_that_one_lane_proves",),
    ),
    "rounds: a reader without a writer takes a begun segment for no proof of its own lane": Bug(
        "store/live/lane.py", "                mark = max(mark, joint)  # no segment", "                # no segment",
        (f"{READERS}::test_a_reader_without_a_writer_takes_a_begun_segment_for_a_proof_in_each_lane",),
    ),
    "rounds: a lane shows its part before the others": Bug(
        "store/log/rounds.py",
        "        attach_together(parts, self._shown, self._telling, self._crew.do_all)\n",
        "        for part in parts:\n            attach_together([part], self._shown, self._telling)\n",
        (f"{STORED}::test_all_lanes_show_it_at_one_step",),
    ),
    "rounds: a part is built where the others do not look for it": Bug(
        "store/log/round_part.py", "        self._force()  # first: it pads, and takes room\n", "",
        (f"{STORED}::test_parts_lie_where_they_say_also_at_the_borders_of_segments",),
    ),
    "rounds: parts of other lanes are not forced before a lane is sealed": Bug(
        "store/segment/round_parts.py",
        "                self._keep(self._path(place), place.position, end)\n", "                pass\n",
        (f"{CRASHES}::test_a_part_that_counts_is_forced_before_another_lane_is_sealed_with_its_own",),
    ),
    "rounds: what a thread submitted before comes after": Bug(
        "store/log/round_part.py", "        self._or_fail(self.flusher.take_queued)\n", "",
        (f"{STORED}::test_what_a_thread_has_submitted_before_comes_before",),
    ),
    "rounds: a full disk for one is one for all": Bug(
        "store/log/rounds.py", "            if len(given) > 1:\n", "            if not given:\n",
        (f"{ERRORS}::test_of_a_round_that_has_no_space_those_that_fit_are_stored",),
    ),
    "transactions: a loop does not look for an answer that it has lost": Bug(
        "store/api/batches.py", "        for batch in list(watch.batches):\n            batch.look()\n", "",
        ("tests/store/test_async_batches.py::test_a_loop_that_has_lost_its_look_gets_another_one",), hangs=True,
    ),
    "transactions: one that leaves the line keeps its messages": Bug(
        "store/api/batches.py",
        "        if self.future.cancelled():\n            for group in reversed(self._lined):\n"
        "                error = group.queue.withdraw(group)\n",
        "        if self.future.cancelled():\n            for group in reversed(self._lined):\n"
        "                error = group.queue.withdraw(group) and None\n",
        (f"{ACKS}::test_a_cancelled_commit_in_line_gives_the_messages_back",),
    ),
    "transactions: frames that are shown are taken back until they are answered": Bug(
        "store/log/writes.py", "frame.table.visible = max(frame.table.visible, end)", "frame.table.visible = end",
        (f"{LARGE}::test_what_is_shown_of_several_frames_never_gets_less",),
    ),
    "transactions: records of ids count as messages of the user's": Bug(
        "store/subscriptions/committing.py", "            size += ID_BYTES * len(one.digests)\n",
        "            count, size = count + 1, size + one.size_bytes\n",
        (f"{IDS}::test_all_messages_of_the_largest_transaction_may_have_ids",),
    ),
    "transactions: ids take no room until the commit": Bug(
        "store/subscriptions/committing.py", "0 if digest is None else ID_BYTES", "0",
        (f"{IDS}::test_ids_take_room_in_a_transaction_when_they_are_given",),
    ),
    "transactions: ids of a batch take no room until the commit": Bug(
        "store/api/transaction.py", "ID_BYTES * (len(digests) - digests.count(None))", "0",
        (f"{IDS}::test_ids_take_room_in_a_transaction_when_they_are_given",),
    ),
    "small transactions: durable acknowledgements pile up": Bug(
        "store/subscriptions/joint_acks.py", "if len(state.stored) >= TAKEN_TOGETHER:", "if len(state.stored) < 0:",
        (f"{SMALL}::test_durable_acknowledgements_are_counted_by_each_look_and_do_not_pile_up",),
    ),
    "small transactions: durable acknowledgements of one message pile up": Bug(
        "store/subscriptions/acknowledging.py", "if len(state.stored) >= TAKEN_TOGETHER:",
        "if len(state.stored) < 0:",
        (f"{SMALL}::test_durable_acknowledgements_are_counted_by_each_look_and_do_not_pile_up",),
    ),
    "small transactions: all of a frame have the offsets of the first one": Bug(
        "store/log/batch.py", "request.offsets = each[at:end]", "request.offsets = each[: request.count]",
        (f"{SMALL}::test_transactions_that_share_a_frame_with_others_have_their_own_offsets",),
    ),
    "small transactions: one holds the offsets of its whole frame": Bug(
        "store/api/transaction.py", "        if self._offsets.base is not None:", "        if False:",
        (f"{SMALL}::test_transactions_that_share_a_frame_with_others_have_their_own_offsets",),
    ),
    "small transactions: True is the queue 1": Bug(
        "store/api/transaction.py", "type(data) is bytes and type(queue_id) is int and type(topic) is str",
        "type(data) is bytes and type(topic) is str",
        (f"{SMALL}::test_of_a_known_queue_a_wrong_message_is_an_error_all_the_same",),
    ),
    "small transactions: a message of a known queue may be too large": Bug(
        "store/api/transaction.py", " and len(data) <= appender.max_message_bytes", "",
        (f"{SMALL}::test_of_a_known_queue_a_wrong_message_is_an_error_all_the_same",),
    ),
    "small transactions: columns go to earlier messages": Bug(
        "store/subscriptions/committing.py", "[*[None] * (row - len(self.extras)), extras]", "[extras]",
        (f"{SMALL}::test_columns_and_ids_stay_with_their_messages_wherever_these_are",),
    ),
    "small transactions: ids go to earlier messages": Bug(
        "store/subscriptions/committing.py", "[*[None] * (row - len(self.digests)), digest]", "[digest]",
        (f"{SMALL}::test_columns_and_ids_stay_with_their_messages_wherever_these_are",),
    ),
}  # fmt: skip
