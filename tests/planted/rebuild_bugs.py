"""Bugs in what makes lost footers and delayed indexes again, and in what compacts a log."""

from __future__ import annotations

from .plant import Bug

FOOTERS = "tests/store/rebuild/test_footers.py"
DELAYS = "tests/store/rebuild/test_delays.py"
COMPACT = "tests/store/compact/test_compacting.py"
GONE = "tests/store/compact/test_gone_streams.py"

REBUILD: dict[str, Bug] = {
    "rebuild: a footer is made of messages with wrong bytes": Bug(
        "store/rebuild/looking.py", "if found.whole < kept or header.first_entry != count:", "if False:",
        (f"{FOOTERS}::test_footer_behind_damaged_messages_is_left_and_told",),
    ),
    "rebuild: a footer begins with offset 0 where nothing tells of it": Bug(
        "store/rebuild/placing.py", "if sequence == self._lane.begins_at == 1 else None", "if True else None",
        (f"{FOOTERS}::test_first_footer_is_left_where_retention_has_removed_what_tells_of_it",),
    ),
    "rebuild: records do not count": Bug(
        "store/rebuild/placing.py", "        trimmed = streams.trimmed_at(ends)\n", "        trimmed = {}\n",
        (f"{FOOTERS}::test_lost_footers_are_made_again_byte_for_byte",),
    ),
    "rebuild: a footer is put into the log whatever its bytes": Bug(
        "store/rebuild/footers.py",
        "    if len(content) != made.size_bytes or checksum64(content) != made.checksum:\n", "    if False:\n",
        (f"{FOOTERS}::test_footer_that_was_damaged_on_its_way_is_not_put_into_the_log",),
    ),
    "rebuild: the mark of an index lies behind what is not in it": Bug(
        "store/api/rebuilding.py", "            place = LogPlace(at.sequence + 1, 0)\n",
        "            place = LogPlace(at.sequence + 2, 0)\n", (DELAYS,),
    ),
    "compact: its own opening appends behind the seals": Bug(
        "store/api/compacting.py", "        running.end_appends()\n", "",
        (f"{COMPACT}::test_what_its_own_opening_tidies_up_does_not_hinder_it",),
    ),
    "compact: a message with wrong bytes is copied": Bug(
        "store/compact/live.py", "if len(wrong_messages(frame, payload, rows)):", "if False:",
        (f"{COMPACT}::test_damage_is_an_error_and_nothing_has_changed",),
    ),
    "compact: what stays is weighed by the number of messages": Bug(
        "store/compact/plan.py", "max(1, _live_bytes(sealed, footer, firsts))",
        "int((sealed.record.data_end - DATA_START) * counts.sum() / (ends - footer.first).sum())",
        (f"{COMPACT}::test_what_stays_is_weighed_by_its_bytes",),
    ),
    "compact: a frame of which nothing stays is looked at": Bug(
        "store/compact/live.py", "            if not stays[first:following].any():\n",
        "            if first == following:\n",
        (f"{COMPACT}::test_a_damaged_head_of_a_frame_that_goes_is_no_hindrance",),
    ),
    "compact: the messages of each stream begin with offset 0": Bug(
        "store/compact/joining.py", "self._firsts = plan.firsts.copy()", "self._firsts = np.zeros_like(plan.firsts)",
        (f"{COMPACT}::test_reads_give_the_same_from_fewer_segments",),
    ),
    "compact: what was trimmed has the numbers of the old log": Bug(
        "store/compact/plan.py", "TrimmedColumns(stay.searchsorted(columns.numbers[kept]),",
        "TrimmedColumns(columns.numbers[kept],",
        (GONE,),
    ),
    "compact: streams that are gone keep their numbers": Bug(
        "store/compact/plan.py", "np.flatnonzero(~gone)", "np.arange(len(gone))",
        (f"{GONE}::test_no_row_without_a_name_is_left_and_the_others_keep_their_order",),
    ),
    "compact: a reader that is open looks for old numbers in the new log": Bug(
        "store/live/lane.py", "if first > newest + 1 and self.lane.streams:", "if False:",
        (f"{GONE}::test_a_reader_that_is_open_meanwhile_finds_each_queue_by_its_new_number",),
    ),
    "compact: a reader relies on the page of the old log": Bug(
        "store/live/follower.py",
        "            self._seen, self._look_at = NO_MOVES, float(\"-inf\")\n            return has_moved\n",
        "            return has_moved\n",
        (f"{GONE}::test_a_read_behind_a_compaction_does_not_rely_on_the_page_of_the_old_log",),
    ),
    "compact: an open planner keeps the names of the old log": Bug(
        "store/api/scan_plans.py", "known if known_of is lane else None", "known",
        (f"{GONE}::test_a_planner_that_is_open_meanwhile_plans_by_the_names_of_the_new_log",),
    ),
    "compact: what is applied is forgotten": Bug(
        "store/compact/joining.py",
        "self._trimmed, self._plan.applied, self.end.mark", 'self._trimmed, b"", self.end.mark',
        (f"{COMPACT}::test_bulk_commits_are_not_done_twice_behind_it",),
    ),
    "compact: a position of the old log counts in the new one": Bug(
        "store/api/scan_plans.py", "                looks[lane].check_compacted(self._store._disk, position)\n", "",
        (f"{COMPACT}::test_positions_of_the_old_log_are_refused_also_where_gaps_are_passed_over",),
    ),
    "bulk: a lane that stands still waits for the thread that seals": Bug(
        "store/log/stopping.py", "sealer.seal_full(PRESSED_S)", "pass", ("tests/store/shards/test_stopping.py",),
    ),
    "rebuild: an index has messages that were due by then": Bug(
        "store/rebuild/delays.py", "mine = (of_topic == number) & (rows.times_ms > part.after_ms)",
        "mine = of_topic == number", (f"{DELAYS}::test_what_is_due_by_then_is_not_pending",),
    ),
}  # fmt: skip
