"""Bugs of work queues, and of the most that a topic keeps."""

from __future__ import annotations

from .plant import Bug

QUEUES = "store/delayed/work_queues.py"
KEEPING = "store/delayed/keeping.py"
FULL = "store/topics/full.py"
FILE = "tests/store/topics/test_work_queues.py"
OF_LOOKS = "tests/store/topics/test_work_queue_looks.py"
EXPIRED = (f"{OF_LOOKS}::test_a_full_work_queue_goes_on_when_its_messages_are_too_old_for_its_subscriptions",)
UNREADABLE = (f"{OF_LOOKS}::test_a_topic_whose_settings_cannot_be_read_keeps_all_and_loses_nothing_early",)
ALONE = (f"{FILE}::test_a_work_queue_without_a_subscription_keeps_all_whatever_age_and_size_want",)
IDLE = (f"{FILE}::test_an_idle_store_with_many_subscriptions_writes_and_removes_nothing",)
IDLE_QUEUES = (f"{FILE}::test_an_idle_store_with_many_work_queues_writes_and_removes_nothing",)
OTHERS = (f"{FILE}::test_a_message_of_another_topic_stops_what_follows_it_until_it_is_removed",)
GOES = (f"{FILE}::test_what_all_have_acknowledged_goes_without_any_retention",)
LEFT = (f"{FILE}::test_what_is_left_in_nearly_empty_segments_is_moved_forward",)
FRONT = (f"{FILE}::test_wanted_messages_in_front_move_so_that_what_follows_can_go",)
AHEAD = (f"{FILE}::test_an_ordered_subscription_gets_what_it_has_read_ahead_before_copies_of_what_follows",)
LOOKS = (f"{FILE}::test_looks_go_by_what_has_changed",)
SETTING = (f"{FILE}::test_a_topic_that_is_a_work_queue_no_more_is_left_to_retention",)
FULL_QUEUE = (f"{FILE}::test_a_full_work_queue_takes_no_message_until_it_is_consumed",)
MODEL = (f"{FILE}::test_no_message_goes_that_a_subscription_has_not_acknowledged_by_a_model",)
GIVEN_BACK = ("tests/store/topics/test_cap.py::test_delayed_messages_that_are_too_old_are_given_back",)
PADDED = (f"{FILE}::test_lone_jobs_that_fill_more_than_half_a_block_are_not_moved_while_nothing_is_acknowledged",)
CAP = "tests/store/topics/test_cap.py"
ONCE = (f"{CAP}::test_copies_in_segments_that_are_kept_count_once",)
OPENED = (f"{CAP}::test_the_cap_holds_when_a_store_has_been_opened",)
SET = (f"{CAP}::test_a_cap_holds_when_it_has_been_set",)
PASSES = (f"{CAP}::test_a_transaction_that_acknowledges_as_much_as_it_appends_passes_the_cap",)
NOTES = (f"{CAP}::test_the_newest_of_two_notes_at_once_holds",)

WORK_QUEUES: dict[str, Bug] = {
    "work queue: without a subscription nothing is kept": Bug(
        "store/subscriptions/progress.py", "return found if is_subscribed or not without else ~found", "return found",
        ALONE,
    ),
    "work queue: one whose settings cannot be read keeps nothing without a subscription": Bug(
        QUEUES, "settings.keep in (WORK_QUEUE, UNKNOWN)", "settings.keep == WORK_QUEUE", UNREADABLE,
    ),
    "work queue: a topic whose settings cannot be read goes as one": Bug(
        QUEUES, "for topic, one in settings.items() if one.keep == WORK_QUEUE}",
        "for topic, one in settings.items() if one.keep in (WORK_QUEUE, UNKNOWN)}", UNREADABLE,
    ),
    "work queue: copies that no subscription wants are dropped": Bug(
        "store/delayed/wanted.py", "without=delays.is_work_queue(topic))", "without=False)", ALONE,
    ),
    "work queue: segments with messages of other topics go": Bug(
        QUEUES, "                    if copied_bytes is None:\n                        return None\n",
        "                    copied_bytes = copied_bytes or 0\n", OTHERS,
    ),
    "work queue: what is wanted does not hold segments": Bug(
        QUEUES, "all_bytes <= MOST_BYTES * moved_bytes + self._least_bytes", "all_bytes <= self._least_bytes", IDLE,
    ),
    "work queue: delayed jobs that are too old fill it": Bug(
        QUEUES, "known[0][1:] == found and self._delays.parts.clock.wall_ms() <= known[0][0]:",
        "known[0][1:] == found:", GIVEN_BACK,
    ),
    "cap: delayed messages that are too old fill a topic": Bug(
        "store/delayed/wanted.py", "    return rows.take(~_are_over(delays, kept, topic,",
        "    return rows.take(0 == 0 * _are_over(delays, kept, topic,", GIVEN_BACK,
    ),
    "cap: copies of delayed messages that are too old fill a topic": Bug(
        "store/delayed/wanted.py", "    return wanted & ~too_old\n", "    return wanted\n", GIVEN_BACK,
    ),
    "cap: a moved message that has come is too old": Bug(
        "store/delayed/wanted.py", "    over[over] = ~were_moved(", "    over[over] |= ~were_moved(", GIVEN_BACK,
    ),
    "work queue: jobs are moved for their padding": Bug(
        QUEUES, "MOST_BYTES = 2 ", "MOST_BYTES = 1.5 ", PADDED,
    ),
    "work queue: records are written again for ever": Bug(
        QUEUES, "size_bytes + (MOVED_BYTES if stream.low >= first else 0)", "size_bytes", IDLE,
    ),
    "work queue: a copy counts by its bytes, not by its block": Bug(
        QUEUES, "moved_bytes += align_up(copied_bytes)", "moved_bytes += copied_bytes", IDLE_QUEUES,
    ),
    "work queue: segments that are to go are kept as expired ones are": Bug(
        KEEPING, "if content and not self.work_queues.goes(lane, oldest):", "if content:", FRONT,
    ),
    "work queue: segments of records rest": Bug(
        "store/log/removal.py", "partial(self.is_done, lane), rests=False", "partial(self.is_done, lane)", LEFT,
    ),
    "work queue: with os, segments go before what was moved out of them is forced": Bug(
        "store/log/removal.py", "                self._force()\n", "",
        (f"{FILE}::test_with_durability_os_a_power_cut_takes_no_copy_of_a_message_that_was_forced",),
    ),
    "work queue: a look may go beyond the segments that retention has": Bug(
        QUEUES, "first + min(len(known.shares), len(segments))", "first + len(known.shares)",
        (f"{FILE}::test_a_look_of_another_thread_may_have_seen_newer_segments",),
    ),
    "work queue: acknowledgements are not noted": Bug(
        "store/subscriptions/acknowledging.py", "            state.stored += rows\n            state.note_progress()\n",
        "            state.stored += rows\n", LOOKS,
    ),
    "work queue: acknowledgements of a batch are not noted": Bug(
        "store/subscriptions/acknowledging.py",
        "                table.remove(rows)\n                state.note_progress()\n",
        "                table.remove(rows)\n", LOOKS,
    ),
    "work queue: a seek is not noted": Bug(
        "store/subscriptions/state.py",
        "                self.order.drop(offsets)\n        self.note_progress()\n",
        "                self.order.drop(offsets)\n", LOOKS,
    ),
    "work queue: all its segments are looked at": Bug(
        QUEUES, "            known.is_unfinished\n", "            True\n", LOOKS,
    ),
    "work queue: a topic stays one": Bug(
        QUEUES, "            if queues != self._queues:\n", "            if not self._queues:\n", SETTING,
    ),
    "work queue: what was known of one that is none any more stays": Bug(
        QUEUES, "            if not queues.items() >= self._queues.items():  #", "            if False:  #", (
            f"{OF_LOOKS}::test_what_was_known_of_a_work_queue_goes_with_its_setting",
        ),
    ),
    "work queue: one more has all segments looked at": Bug(
        QUEUES, "            if not queues.items() >= self._queues.items():  #",
        "            if queues != self._queues:  #",
        (f"{OF_LOOKS}::test_one_more_work_queue_does_not_look_at_the_segments_of_the_others",),
    ),
    "work queue: what is too old is wanted": Bug(
        QUEUES, "            return [], 0  #", "            pass  #", EXPIRED,
    ),
    "work queue: nobody looks when messages become too old": Bug(
        QUEUES, "known.is_changed or self._has_expired(known) or (", "known.is_changed or (", EXPIRED,
    ),
    "work queue: what becomes too old waits for its turn": Bug(
        QUEUES, "*range(turn, known.turn), *expired}", "*range(turn, known.turn)}", (
            f"{OF_LOOKS}::test_segments_are_looked_at_once_when_their_messages_become_too_old",
        ),
    ),
    "topics: a refused change has all settings read": Bug(
        "store/topics/table.py", "self._keeping = _changed(before, topic, self._or_keeping(topic))", "pass", (
            f"{OF_LOOKS}::test_a_refused_change_leaves_what_is_known_of_all_settings",
        ),
    ),
    "work queue: copies that are too old are wanted": Bug(
        QUEUES, "                mine &= topic.copies.times_ms > 0  #", "                pass  #", (
            f"{OF_LOOKS}::test_copies_of_a_work_queue_go_when_they_are_too_old",
        ),
    ),
    "work queue: a trim does not free what follows": Bug(
        QUEUES, "known.blocked[1] != lane.lows.shown", "False", OTHERS,
    ),
    "work queue: what is wanted of it does not fill it": Bug(
        KEEPING, "max(expired, self.work_queues.wanted_bytes(lane.index, topic))", "expired", FULL_QUEUE,
    ),
    "work queue: the newest acknowledgements are not asked for": Bug(
        QUEUES, "if known is not None and known[0] == found:", "if known is not None:", GOES,
    ),
    "keep: copies of messages come before those that were read ahead": Bug(
        "store/subscriptions/dispatcher.py", "self.state.order is not None and self._scanner.has_copies_ahead()",
        "False", AHEAD,
    ),
    "cap: copies count twice in segments that are kept": Bug(
        KEEPING, "topics[one.topic] += 0 if one.are_copies else one.size_bytes", "topics[one.topic] += one.size_bytes",
        ONCE,
    ),
    "cap: retention leaves more for copies that it keeps already": Bug(
        KEEPING, "max(0, found - sum([look.copied_bytes for look in looks]))", "found", ONCE,
    ),
    "cap: an opened store does not know which topics are full": Bug(
        "store/api/store.py", "        self._fetcher.configured.full.look_now()  #", "        #", OPENED,
    ),
    "cap: a new cap holds from retention's next look on": Bug(
        "store/api/topic_calls.py", "            full.look_now()\n", "            pass\n", SET,
    ),
    "cap: the error has the cap of before": Bug(
        FULL, "topic in known and self._most.get(topic) == most_bytes", "topic in known", SET,
    ),
    "cap: a consumer's transaction is refused": Bug(
        FULL, "acknowledged() if acknowledged is not None else {}", "dict[str, int]()", PASSES,
    ),
    "cap: a transaction that acknowledges passes whatever it appends": Bug(
        FULL, "if counts[topic] > freed.get(topic, 0)}", "if not freed.get(topic, 0)}", PASSES,
    ),
    "cap: an older look may have the last word": Bug(FULL, "        with self._noting:\n", "        if True:\n", NOTES),
}  # fmt: skip
