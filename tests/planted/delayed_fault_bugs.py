"""Bugs of delayed delivery beside faults: interrupts, damage, idle subscriptions, many changes, errors."""

from __future__ import annotations

from .plant import Bug

PROMISES = "tests/store/delayed/test_promises.py"
TRACKERS = "tests/index/trackers/test_interrupted_trackers.py"

SCANS = ("tests/store/delayed/test_due_scan.py",)

DELAYED_FAULTS: dict[str, Bug] = {
    "delayed scans: of an open segment the frame after a wanted one is taken": Bug(
        "store/delayed/due_scan.py", "bisect_right(begins, entry) - 1 for", "bisect_right(begins, entry) for", SCANS,
    ),
    "delayed scans: a topic's first index reads all frames of an open segment": Bug(
        "store/delayed/due_scan.py", "    if wanted is None or not frames:\n", "    if True:\n", SCANS,
    ),
    "delayed scans: a topic's first index reads all frames of a sealed segment": Bug(
        "store/delayed/due_scan.py", "np.intersect1d(due_frames(footer), theirs)", "due_frames(footer)", SCANS,
    ),
    "delayed scans: a segment without the first of a topic's streams is passed over": Bug(
        "store/delayed/due_scan.py", "not any([sealed.first_of(number)[1] for number in wanted])",
        "not all([sealed.first_of(number)[1] for number in wanted])", SCANS,
    ),
    "delayed faults: a scan passes messages before they are in the index": Bug(
        "store/delayed/delays.py", "            if len(part.rows.numbers):\n",
        "            scan.move(part)\n            if len(part.rows.numbers):\n",
        (f"{PROMISES}::test_messages_whose_way_into_the_index_is_cut_short_come_neither_early_nor_never",),
    ),
    "delayed faults: what is due leaves the tracker before it is given": Bug(
        "index/trackers/tracker.py",
        "                    give(*positions_of(places))\n                    self._change(self._drop, len(places))\n",
        "                    self._change(self._drop, len(places))\n                    give(*positions_of(places))\n",
        (f"{TRACKERS}::test_what_cannot_be_given_stays_pending",),
    ),
    "delayed faults: a tracker is used on after a change that was cut short": Bug(
        "index/trackers/tracker.py",
        "            self._refuse()\n            try:\n                return step(*given, **named)\n",
        "            try:\n                return step(*given, **named)\n",
        (f"{TRACKERS}::test_memory_that_ends_while_the_inbox_is_sorted_is_known",),
    ),
    "delayed faults: after a step back of the clock all that comes later counts as given out": Bug(
        "store/delayed/absent.py", "        self.owes(now_ms + 1)\n", "",
        ("tests/store/delayed/test_clock_steps.py"
         "::test_message_told_to_come_later_after_a_step_back_is_in_an_index_that_is_made_anew_meanwhile",),
    ),
    "delayed faults: what was told to be due can be changed once the index is made anew": Bug(
        "store/delayed/decisions.py", "max(now_ms, topic.given.told_ms)", "now_ms",
        ("tests/store/delayed/test_clock_steps.py"
         "::test_change_comes_too_late_for_what_was_told_to_be_due_before_a_step_back_and_an_index_made_anew",),
    ),
    "delayed faults: what was moved to a time that is over counts as given out": Bug(
        "store/delayed/decisions.py", "            topic.given.owes(due_ms)\n", "",
        ("tests/store/delayed/test_interrupted_changes.py"
         "::test_message_moved_to_a_time_that_is_over_is_in_an_index_that_is_made_anew_before_it_came",),
    ),
    "trims: what retention has removed is not trimmed": Bug(
        "store/api/trimming.py", "if stream is None or low <= stream.low:", "if stream is None or low <= first:",
        ("tests/store/subscriptions/test_removed_messages.py"
         "::test_a_trim_reaches_what_was_read_ahead_of_what_retention_has_removed",),
    ),
    "delayed faults: what is not in the index is taken for due": Bug(
        "store/delayed/messages.py", "lost: Bools = absent & (times > topic.given.latest_ms)",
        "lost: Bools = absent & (times > 1 << 62)",
        (f"{PROMISES}::test_message_that_the_index_has_missed_is_pending_by_its_own_time",),
    ),
    "delayed faults: one damaged frame hides the rest of its segment": Bug(
        "store/delayed/due_scan.py", "frames, first, known.offsets, damaged)", "frames, first, known.offsets)",
        (f"{PROMISES}::test_damaged_frame_hides_its_own_messages_alone",),
    ),
    "delayed faults: an idle subscription holds up all others": Bug(
        "store/delayed/due_list.py", "            for pointer in slowest:\n                pointer.miss(self.end)\n",
        "            return 0\n",
        (f"{PROMISES}::test_pointer_that_stopped_anywhere_holds_others_up_for_a_while_only",),
    ),
    "delayed faults: a message that was moved takes its memory after it has come": Bug(
        "store/delayed/topic.py", "        self.changes.came(places_of(queue_ids, entries))\n", "        pass\n",
        (f"{PROMISES}::test_messages_that_were_moved_and_have_come_do_not_fill_the_index",),
    ),
    "delayed faults: an index whose rebuild failed is closed for good": Bug(
        "store/delayed/topic_index.py", "        damaged.close()  #",
        "        damaged.close()\n        damaged._is_changing = False  #",
        (f"{PROMISES}::test_rebuild_that_fails_is_tried_again_by_the_next_call",),
    ),
    "delayed faults: an index that cannot be saved keeps the others from it": Bug(
        "store/delayed/delays.py", "except Exception as error:  # whatever it is, the next opening",
        "except StoreError as error:  # the next opening",
        (f"{PROMISES}::test_close_saves_the_index_of_each_topic_and_raises_nothing_foreign",),
    ),
    "delayed faults: what was trimmed stays in the index": Bug(
        "store/delayed/topic_index.py", "list(self.trimmed.discard(self._tracker))", "[]",
        (f"{PROMISES}::test_trims_take_entries_out_of_the_index_at_once_and_for_good",),
    ),
    "delayed faults: what an index behind has not read counts as given out": Bug(
        "store/delayed/topic.py", "                if self.scans is None:  # else", "                if True:  # else",
        ("tests/store/delayed/test_clock_steps.py"
         "::test_message_that_is_due_before_a_lagging_index_has_read_it_is_in_an_index_that_is_made_anew",),
    ),
    "delayed faults: a closing that is cut short leaves the scanner where it was": Bug(
        "store/subscriptions/dispatcher.py", "        self._has_missed = True  # before the pointer", "        #",
        (f"{PROMISES}::test_closing_that_is_cut_short_loses_no_delayed_message",),
    ),
}  # fmt: skip
