"""The bugs, by name: what they break, in which source, and which tests have to see it."""

from __future__ import annotations

from .attack_store_bugs import MEETINGS
from .bulk_bugs import BULK
from .clock_bugs import CLOCKS
from .commits_bugs import COMMITS
from .console_bugs import CONSOLE
from .consumer_bugs import CONSUMERS
from .core_bugs import CORE
from .damaged_record_bugs import DAMAGED_RECORDS
from .dead_letter_bugs import DEAD_LETTERS
from .delayed_bugs import DELAYED
from .delayed_fault_bugs import DELAYED_FAULTS
from .device_bugs import DEVICE
from .endpoint_bugs import ENDPOINT
from .example_bugs import EXAMPLES
from .filter_bugs import FILTERS
from .full_bugs import FULL
from .gone_bugs import GONE
from .growth_consumer_bugs import GROWTH_OF_CONSUMERS
from .interrupt_bugs import INTERRUPTS
from .keep_bugs import KEEPING_TOPICS
from .many_topic_bugs import MANY_TOPICS
from .message_id_bugs import MESSAGE_IDS
from .metrics_bugs import METRICS
from .order_bugs import ORDER
from .peers_bugs import PEERS
from .plan_bugs import PLANNING
from .plant import Bug
from .portable_bugs import PORTABLE
from .position_bugs import POSITIONS
from .read_bugs import READING
from .reader_bugs import READERS
from .rebuild_bugs import REBUILD
from .release_bugs import RELEASE
from .report_bugs import REPORTS
from .sim_bugs import LOSSES
from .small_bugs import SMALL_BLOCKS
from .spark_bugs import SPARK
from .subscription_bugs import SUBSCRIPTIONS
from .topic_bugs import SETTINGS_OF_TOPICS
from .transaction_bugs import TRANSACTIONS
from .visit_bugs import VISITING
from .work_queue_bugs import WORK_QUEUES

CACHE: dict[str, Bug] = {
    "cache: a reader does not look whether rows were taken away": Bug(
        "cache/block_cache.py", "if chain.version == version and self.rows.columns is columns:", "if True:",
        ("tests/cache/test_readers.py",),
    ),
    "cache: a block that is free again is given out while others hold it": Bug(
        "cache/block_cache.py", "        if left:\n            return\n", "", ("tests/cache/test_remainder.py",),
    ),
    "cache: messages that were pushed out are still found": Bug(
        "cache/chain.py", "max(offset, self.low)", "offset", ("tests/cache/test_block_cache.py",),
    ),
    "cache: an admitted message is not taken from what is free": Bug(
        "cache/admission.py", "free_bytes -= int(", "free_bytes -= 0 * int(", ("tests/cache/test_admission.py",),
    ),
    "cache: a reader at the threshold counts as active": Bug(
        "cache/cursors.py", "offsets - positions < self.backlog_messages",
        "offsets - positions <= self.backlog_messages",
        ("tests/cache/test_cursors.py",),
    ),
    "cache: the last fragment of a message is cut one byte late": Bug(
        "cache/edge.py", "ends - tails, ends)", "ends - tails + 1, ends)", ("tests/cache/test_edge.py",),
    ),
    "cache: what was read last goes first": Bug(
        "cache/read_cache.py", "self._remove(next(iter(self._runs.values())))",
        "self._remove(next(reversed(self._runs.values())))",
        ("tests/cache/test_read_cache.py",),
    ),
    "cache: a cached message is believed without its checksum": Bug(
        "store/read/cached.py",
        "if (checksum ^ at ^ name) & LOW_32 != tag:", "if False:",
        ("tests/store/test_caches.py::test_bytes_that_went_bad_in_a_tier_are_read_from_the_log",),
    ),
}  # fmt: skip

UPKEEP: dict[str, Bug] = {
    "retention: young messages go with the old ones": Bug(
        "store/log/removal.py", "self._clock.wall_ms() - self._config.retention_ms",
        "self._clock.wall_ms() + self._config.retention_ms",
        ("tests/store/test_retention.py",),
    ),
    "retention: a removed segment is used again under its readers": Bug(
        "store/log/removal.py",
        "weakref.finalize(segment, self._unused, *told).atexit = False",
        "self._unused(*told)",
        ("tests/store/test_retention.py::test_segment_that_is_still_being_read_is_not_recycled",),
    ),
    "retention: the lane with the youngest messages goes first": Bug(
        "store/log/removal.py", "oldest = ages.index(min(ages))", "oldest = ages.index(max(ages))",
        ("tests/store/test_retention.py::test_oldest_segment_of_all_lanes_goes_first",),
    ),
    "retention: a store that is too large stays so": Bug(
        "store/log/removal.py", "while self._excess_bytes() > 0:", "while self._excess_bytes() > 1 << 40:",
        ("tests/soak/test_soak.py::test_ledger_sees_a_retention_that_removes_nothing_or_too_much",),
    ),
    "retention: a segment more than it must goes": Bug(
        "store/log/removal.py", "if self._left_bytes <= 0 or (at and", "if self._left_bytes <= -65_536 or (at and",
        ("tests/soak/test_soak.py::test_ledger_sees_a_retention_that_removes_nothing_or_too_much",),
    ),
    "footers: a damaged table is taken for whole": Bug(
        "store/format/stored_column.py", "if checksum64(data[at : at + CHUNK_BYTES]) != self._sums[number]:",
        "if False:",
        ("tests/store/test_footer.py",),
    ),
    "footers: a stream is said to be one segment further back": Bug(
        "store/segment/present.py", "np.uint64(sequence - self.begin) - ", "np.uint64(sequence - self.begin + 1) - ",
        ("tests/store/test_small_footers.py",),
    ),
    "footers: a group may be without its full footer": Bug(
        "store/log/removal.py", "if lane.groups.known_at(lane.view.sealed)[0][-1:] == [oldest.segment.sequence]:",
        "if False:",
        ("tests/store/test_small_footers.py",),
    ),
    "footers: an idle lane makes no full footer for retention": Bug(
        "store/log/early.py", "return now_s - since_s >= PATIENCE_S and", "return False and",
        ("tests/store/test_early_seals.py",),
    ),
    "footers: streams that no footer names yet are left out of small ones": Bug(
        "store/segment/sealing.py", "fresh = np.arange(self.streams, count)", "fresh = np.arange(0)",
        ("tests/store/test_small_footers.py::test_a_queue_that_only_a_lost_footer_names_keeps_its_name",),
    ),
    "footers: the next offset leaves out the last message": Bug(
        "store/format/footer_data.py",
        "return self.first + self.counts", "return self.first + self.counts - (self.counts > 0)",
        ("tests/store/test_footer.py",),
    ),
}  # fmt: skip

RECOVERY: dict[str, Bug] = {
    "recovery: damage before durable frames is taken for the log's end": Bug(
        "store/recovery/segment_scan.py",
        "return any(mark_of(frame) > place for frame in frames) or", "return False and",
        ("tests/store/test_recovery.py::test_zeroed_block_before_valid_frames_is_reported",
         "tests/store/test_recovery.py::test_flipped_header_bit_before_valid_frames_is_reported"),
    ),
    "recovery: a torn message is taken for a whole one": Bug(
        "store/recovery/segment_scan.py",
        "            self._add(found, found.whole)\n            self.is_torn = True\n",
        "            self._add(found, kept)\n            self.is_torn = True\n",
        ("tests/store/test_recovery.py::test_torn_tail_behind_sealed_segments_is_ignored",
         "tests/store/test_recovery.py::test_flipped_bit_in_the_last_frame_is_ignored_in_a_store_that_was_not_closed"),
    ),
    "repair: what was given up is not copied": Bug(
        "store/recovery/repair.py",
        "target.write([source.read(at, min(COPY_BYTES, position + size - at))], at - position)",
        "pass",
        ("tests/store/test_repair.py",),
    ),
    "repair: later losses are not counted": Bug(
        "store/recovery/lane_files.py", "self._repair.note_missing(path, lost)", "pass",
        ("tests/store/test_repair.py::test_segments_missing_before_a_closed_one_are_told_of",),
    ),
    "repair: a queue's later messages move up into the place of lost ones": Bug(
        "store/recovery/segment_scan.py", "        self.columns.next_entry = resumed.first_entry\n", "",
        ("tests/store/test_repair.py",),
    ),
    "repair: messages are placed among those of later segments": Bug(
        "store/recovery/placement.py", "hidden = np.minimum(wanted, room) * WINDOW", "hidden = wanted * WINDOW",
        ("tests/store/test_placement.py",
         "tests/store/test_repair_again.py"
         "::test_copy_from_before_a_repair_stays_before_the_next_segment_though_nothing_counts_what_is_lost"),
    ),
    "repair: a place is sure though whole windows are left out that nothing explains": Bug(
        "store/recovery/placement.py", " & (wanted <= room)\n", "\n", ("tests/store/test_placement.py",),
    ),
}  # fmt: skip

APPENDING: dict[str, Bug] = {
    "columns: a queue that is in a call twice has offsets that jump": Bug(
        "store/log/offsets.py", "np.repeat(column[streams] - begins, counts)", "np.repeat(column[streams], counts)",
        ("tests/store/test_offsets.py", "tests/store/test_columns.py::test_columns_are_stored_as_messages"),
    ),
    "columns: the offsets of a queue are not in the order of its rows": Bug(
        "store/log/offsets.py", 'order = numbers.argsort(kind="stable")', "order = numbers.argsort()[::-1]",
        ("tests/store/test_offsets.py", "tests/store/test_columns.py::test_columns_are_stored_as_messages"),
    ),
    "columns: each message has the checksum of the one before": Bug(
        "store/log/column_build.py", "        return columns.packed(checksums), entry",
        "        checksums = checksums[[-1, *range(len(ends) - 1)]]\n        return columns.packed(checksums), entry",
        ("tests/store/test_columns.py::test_columns_are_stored_as_messages",),
    ),
    "columns: keys are taken for those of the frame before": Bug(
        "store/format/blobs.py", "        first = int(np.maximum(self.lengths[:begin], 0).sum())\n",
        "        first = int(np.maximum(self.lengths[: begin // 2], 0).sum())\n",
        ("tests/store/test_columns.py::test_columns_are_stored_as_messages",),
    ),
    "columns: checksums are made of what the caller has, not of what is stored": Bug(
        "store/log/written_lane.py", "stored, payloads = ring.view_of(payload, payload_bytes), ()",
        "stored, payloads = b''.join(payloads), ()",
        ("tests/store/test_columns.py::test_bytes_that_change_behind_the_copy_are_not_those_that_are_checked",),
    ),
    "columns: one of two frames makes the ticket done": Bug(
        "store/api/batch_ticket.py", "return all(group.done() for group in self._groups)",
        "return any(group.done() for group in self._groups)",
        ("tests/store/test_columns.py::test_ticket_is_done_when_the_last_frame_is",), hangs=True,
    ),
    "back-pressure: what waits is not counted": Bug(
        "store/log/queue.py", "        self.used_bytes += cost\n", "",
        ("tests/store/test_queue.py::test_what_is_not_durable_counts_and_is_given_back",),
        hangs=True,
    ),
    "back-pressure: nobody is told that there is room again": Bug(
        "store/log/queue.py", "        if self._line:\n            self._let_in()\n", "",
        ("tests/store/test_queue.py::test_append_waits_while_the_buffer_is_full",),
        hangs=True,
    ),
    "interrupts: an interrupted producer keeps the others of its batch asleep": Bug(
        "store/log/request.py",
        "        self.abandoned = True\n        if self.chain is not None:\n            pass_on(self.chain)\n",
        "        self.abandoned = True\n",
        ("tests/store/test_concurrency.py::test_interrupted_producer_does_not_stall_the_others",), hangs=True,
    ),
    "appending: a message overtakes those that were handed over before": Bug(
        "store/log/queue.py", "                    self._items.append(request)\n",
        "                    self._items.insert(0 if len(self._items) > 3 else len(self._items), request)\n",
        ("tests/store/test_line.py::test_appends_of_one_thread_keep_their_order_whatever_their_kinds",),
    ),
    "durability: a lane that has gone quiet leaves no mark": Bug(
        "store/api/running.py", "self.queues[lane.index].put(NotedBarrier(), wait=False)", "pass",
        ("tests/store/test_marks.py::test_mark_without_room_does_not_fail_the_flush_beside_it",),
    ),
    "appending: an awaited append waits ten times too long": Bug(
        "store/api/appender.py", "call_later(loop, self.config.append_timeout_ms, ends)",
        "call_later(loop, 10 * self.config.append_timeout_ms, ends)",
        ("tests/store/test_concurrency.py::test_awaited_append_gives_up_after_the_time_that_is_set",),
    ),
    "memory: each lane has the whole publish buffer": Bug(
        "store/api/lanes.py", "self._caches.publish_buffer_bytes // self._lanes", "self._caches.publish_buffer_bytes",
        ("tests/store/test_queue.py::test_cap_is_over_all_lanes",),
    ),
}  # fmt: skip

TRIMMING: dict[str, Bug] = {
    "trims: a footer leaves them out": Bug(
        "store/log/written_lane.py", "self.chain, self.trims.lend(), self.commits.packed)",
        "self.chain, type(self.trims)().lend(), self.commits.packed)",
        ("tests/store/test_trim.py::test_record_in_a_sealed_segment_is_in_its_footer",),
    ),
    "trims: acknowledged before they are durable": Bug(
        "store/api/trimming.py", "            request.result()\n", "            request.done()\n",
        ("tests/store/test_trim.py::test_closed_poisoned_and_looked_at_stores_refuse",),
    ),
    "trims: a scan gives trimmed messages": Bug(
        "store/read/scan.py", "unwanted = offsets < self.lows.take(numbers, mode=\"clip\")",
        "unwanted = offsets < 0",
        ("tests/store/test_trim.py::test_trimmed_messages_are_gone_for_good",),
    ),
    "trims: a segment goes when a part of it is trimmed": Bug(
        "store/log/removal.py", "> lows[numbers]]", "> lows[numbers]][1:]",
        ("tests/store/test_trim.py::test_segment_with_one_message_of_another_queue_stays",),
    ),
    "trims: a deleted topic is deleted again and again": Bug(
        "store/api/trimming.py", "if next_offset > stream.hidden:", "if next_offset > 0:",
        ("tests/store/test_trim.py::test_deleted_topic_is_gone_until_it_has_a_new_message",),
    ),
}  # fmt: skip

BESIDE: dict[str, Bug] = {
    "other processes: the page tells of what was not forced": Bug(
        "store/log/writes.py", "        if write.force:\n            self.forced_mark",
        "        if True:\n            self.forced_mark",
        ("tests/store/test_read_only.py::test_unforced_messages_are_not_shown",),
    ),
    "other processes: a file is used again although a reader has it": Bug(
        "store/log/removal.py", "if fits and not self._is_shared(path):", "if fits:",
        ("tests/store/test_read_only_retention.py::test_file_that_a_reader_has_open_is_not_used_again",),
    ),
    "other processes: a file is taken for the segment that it was": Bug(
        "store/live/files.py", "    if not file.is_in_place():\n", "    if False:\n",
        ("tests/store/test_read_only_retention.py::test_reader_held_up_at_any_step_gets_the_right_bytes_or_none",),
    ),
    "other processes: a reader looks behind the durable position": Bug(
        "store/live/tail.py", "first + bisect_right(ends, end)", "first + len(ends)",
        ("tests/store/test_read_only_page.py::test_message_behind_the_mark_is_not_shown",),
    ),
    "other processes: the slot that readers look at is overwritten": Bug(
        "store/live/publisher.py", "        told.slot, told.other = told.other, told.slot\n", "",
        ("tests/store/test_read_only_page.py::test_slot_that_is_half_written_hides_no_earlier_state",),
    ),
    "other processes: a mirror is asked for what its writer never forced": Bug(
        "store/live/followed_ring.py", " if origin + words[END] >= self.shown else NOWHERE", "",
        ("tests/store/test_mirror.py::test_mirror_of_another_writer_is_not_asked_for_what_this_one_wrote",),
    ),
    "other processes: nobody is woken": Bug(
        "store/live/publisher.py", "                page.wake()\n", "",
        ("tests/store/test_read_only_page.py::test_whoever_sleeps_on_the_page_after_a_quiet_time_is_woken",),
    ),
    "other processes: a mark that came after the last look is slept through": Bug(
        "store/live/follower.py",
        "            or page.moves != moves  # after", "            or False  # behind",
        ("tests/store/test_read_only_waiting.py::test_nobody_sleeps_through_a_mark_that_comes_meanwhile",),
        hangs=True,
    ),
    "other processes: the mark follows with the next slot alone": Bug(
        "store/live/publisher.py", "                page.set_word(told.mark_at, mark_word(mark))\n", "",
        ("tests/store/test_read_only_page.py::test_page_has_what_an_answer_told",),
    ),
    "other processes: a mark that was on a disk is believed without its checksum": Bug(
        "store/live/page.py", "        if self.is_current:  # else", "        if True:  # else",
        ("tests/store/test_read_only_page.py::test_mark_of_another_boot_counts_by_its_slot_alone",),
    ),
    "other processes: a reader falls asleep while the writer counts on its looking": Bug(
        "store/live/follower.py", "AWAKE_S = 1.5 * RING_EVERY_S", "AWAKE_S = 0.1 * RING_EVERY_S",
        ("tests/store/test_read_only_waiting.py::test_no_message_is_slept_through_whatever_the_time_between_two",),
        hangs=True,
    ),
    "recovery: a seal record of a killed process is taken without a force": Bug(
        "store/recovery/lane_recovery.py",
        "            write_anew(self._disk, file.path, BLOCK_BYTES, DATA_START)\n", "            pass\n",
        ("tests/store/test_durability.py::test_seal_record_of_a_killed_process_is_durable_before_more_is_built_on_it",),
    ),
}  # fmt: skip

TIMERS: dict[str, Bug] = {
    "timers: one is lost when it moves down a level": Bug(
        "index/timing_wheel.py", "            else:\n                self._place(timer)\n", "",
        ("tests/index/test_wheels.py",),
    ),
    "timers: a deadline between two ticks is rounded down": Bug(
        "index/timing_wheel.py", "-(-timer.deadline_ms // self.tick_ms)", "timer.deadline_ms // self.tick_ms",
        ("tests/index/test_wheels.py",), hangs=True,
    ),
    "timers: the one that fills the gap of a cancelled one does not know its new place": Bug(
        "index/timing_wheel.py", "        last.place = place\n", "", ("tests/index/test_wheels.py",),
    ),
    "timers: a sleeping thread is not woken for a sooner one": Bug(
        "index/timer_thread.py", "        wheel.on_earlier = engine.ring\n", "        wheel.on_earlier = int\n",
        ("tests/index/test_timer_thread.py::test_sooner_timer_wakes_the_thread",), hangs=True,
    ),
    "waiting operations: two threads complete the same one": Bug(
        "index/purgatory.py",
        "            if operation.is_completed:\n                return False\n            if self._wheel.take_out",
        "            if self._wheel.take_out",
        ("tests/index/test_completions.py",),
    ),
    "waiting operations: one that is completed as its time comes is called without a payload": Bug(
        "index/purgatory.py",
        "            if self._wheel.take_out(operation):\n                operation.payload",
        "            self._wheel.take_out(operation)\n            if True:\n                operation.payload",
        ("tests/index/test_completions.py",),
    ),
    "waiting operations: the estimate is never reset": Bug(
        "index/purgatory.py", "            self._estimate = self._pending  # first", "            # first",
        ("tests/index/test_purgatory.py",),
    ),
    "waiting operations: a change during another thread's look is missed": Bug(
        "index/operation.py", "    again, self.again = self.again, False\n                if not",
        "    again, self.again = False, False\n                if not",
        ("tests/index/test_purgatory.py",),
    ),
    "waiting operations: a change between the first look and the watch is missed": Bug(
        "index/purgatory.py",
        "            if operation.try_complete():\n                operation.force_complete()\n"
        "                return True\n            again = ",
        "            again = ",
        ("tests/index/test_purgatory.py",),
    ),
    "waiting operations: a completed one keeps its timer": Bug(
        "index/purgatory.py", "            if self._wheel.take_out(operation):\n", "            if False:\n",
        ("tests/index/test_purgatory.py",),
    ),
}  # fmt: skip

TRACKERS: dict[str, Bug] = {
    "trackers: a time is rounded down, so that an entry is early": Bug(
        "index/trackers/places.py", "    return (times + mask) & ~mask\n", "    return times & ~mask\n",
        ("tests/index/trackers/test_contract.py",),
    ),
    "trackers: an entry that moved comes at its old time as well": Bug(
        "index/trackers/time_buckets.py",
        "        dead = are_in(places, self._due.dead) if self._due.dead and len(places) else None\n",
        "        dead = None\n",
        ("tests/index/trackers/test_contract.py",),
    ),
    "trackers: an entry of the inbox waits beyond its time": Bug(
        "index/trackers/time_buckets.py",
        "        if self._inbox_first <= now_ms:\n", "        if self._inbox_first < now_ms:\n",
        ("tests/index/trackers/test_contract.py",),
    ),
    "trackers: what is pulled of several sources is out of order": Bug(
        "index/trackers/ordered.py", "heads]) > until_ms:", "heads]) >= until_ms:",
        ("tests/index/trackers/test_contract.py",), hangs=True,
    ),
    "trackers: a merge gives rows beyond those that were loaded of all sources": Bug(
        "index/trackers/ordered.py", "time_ms, place = min((", "time_ms, place = max((",
        ("tests/index/trackers/test_bucket_tracker.py", "tests/index/trackers/test_model.py"), hangs=True,
    ),
    "bucket tracker: the old buckets go before the new one is listed": Bug(
        "index/trackers/shelf.py",
        "        is_whole = on_disk == merged.disk\n",
        "        for name in [name for source in sources for name in source.names]:\n"
        "            self._files.remove(name)\n"
        "        is_whole = on_disk == merged.disk\n",
        ("tests/index/trackers/test_crashes.py",),
    ),
    "bucket tracker: the mutable bucket is emptied before the disk has its rows": Bug(
        "index/trackers/bucket_tracker.py",
        "        self._shelf.seal(rows, self._again)\n        self._mutable.clear()\n",
        "        self._mutable.clear()\n        self._shelf.seal(rows, self._again)\n",
        ("tests/index/trackers/test_bucket_tracker.py",),
    ),
    "bucket tracker: a bucket is listed before its name is durable": Bug(
        "index/trackers/shelf.py",
        "        self._files.force_folder()  # the names of the new files are durable before they are listed\n", "",
        ("tests/index/trackers/test_crashes.py",),
    ),
    "bucket tracker: what was taken is forgotten before the checkpoint": Bug(
        "index/trackers/shelf.py", "        self._say(lefts, [*self.buckets, new])\n",
        "        lefts |= {one: one.left for one in self.buckets if one.has_changed}\n"
        "        self._say(lefts, [*self.buckets, new])\n",
        ("tests/index/trackers/test_crashes.py",),
    ),
    "bucket tracker: an entry that moved comes back from where it was first": Bug(
        "index/trackers/shelf.py", "lefts = self._without(places_in(again)) if again else {}", "lefts = {}",
        ("tests/index/trackers/test_crashes.py",),
    ),
    "bucket tracker: what left a bucket while it was merged comes again": Bug(
        "index/trackers/sealed_bucket.py", "        dead |= left.dead - start.dead\n", "",
        ("tests/index/trackers/test_bucket_tracker.py",),
    ),
    "bucket tracker: a segment is believed without its checksum": Bug(
        "index/trackers/sealed_bucket.py", "            if checksum(view[begin : begin + rows * width]) != expected:\n",
        "            if False:\n", ("tests/index/trackers/test_format.py",),
    ),
    "bucket tracker: trimmed entries come back after a crash": Bug(
        "index/trackers/sealed_bucket.py", "        floor = max(self.disk.floor, before_place)\n",
        "        floor = self.disk.floor\n", ("tests/index/trackers/test_bucket_tracker.py",),
    ),
    "precision: a coarse slot comes before its messages": Bug(
        "index/trackers/places.py", "    return (times + mask) & ~mask\n", "    return times & ~mask\n",
        ("tests/store/delayed/test_precision.py",),
    ),
    "precision: a message of a coarse slot is left out when the index is made anew": Bug(
        "store/delayed/absent.py", "self.until_ms - (tick_ms - 1)", "self.until_ms",
        ("tests/store/delayed/test_precision.py",),
    ),
    "index of delayed messages: what finds an entry that was taken stays in memory": Bug(
        "index/trackers/shelf.py", "bucket.rows - pending >= GONE_TIMES * pending", "False",
        ("tests/store/delayed/test_opening.py",),
    ),
    "index of delayed messages: it is stuck at its limit": Bug(
        "store/delayed/topic_index.py", "                    tracker.shrink()  # the index goes on from disk\n",
        "                    pass\n", ("tests/store/delayed/test_opening.py",),
    ),
}  # fmt: skip

BUGS: dict[str, Bug] = {
    **CACHE, **READING, **UPKEEP, **RECOVERY, **APPENDING, **TRIMMING, **BESIDE, **TIMERS, **TRACKERS, **BULK,
    **COMMITS, **PLANNING, **DELAYED, **DELAYED_FAULTS, **VISITING, **REBUILD, **READERS, **CORE, **CONSUMERS,
    **FILTERS, **FULL, **SPARK, **DEVICE, **GONE, **GROWTH_OF_CONSUMERS, **MEETINGS, **LOSSES, **INTERRUPTS, **ORDER,
    **SUBSCRIPTIONS, **SETTINGS_OF_TOPICS, **KEEPING_TOPICS, **POSITIONS, **CLOCKS, **CONSOLE, **TRANSACTIONS,
    **REPORTS, **PEERS, **DEAD_LETTERS, **DAMAGED_RECORDS, **SMALL_BLOCKS, **WORK_QUEUES, **MANY_TOPICS, **MESSAGE_IDS,
    **ENDPOINT, **METRICS, **RELEASE, **PORTABLE, **EXAMPLES,
}  # fmt: skip
