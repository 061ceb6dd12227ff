"""Bugs of subscriptions of several topics, and of receiving from one queue."""

from __future__ import annotations

from .plant import Bug

FOLDER = "store/subscriptions"
TOPICS = ("tests/store/subscriptions/test_topics.py",)
PATTERNS = ("tests/store/subscriptions/test_topic_patterns.py",)
QUEUE = ("tests/store/subscriptions/test_one_queue.py",)
INTERRUPTS = "tests/store/subscriptions/test_interrupts.py"
QUEUE_ENDS = "tests/store/subscriptions/test_queue_ends.py"
ONE_TOPIC_MODEL = ("tests/store/subscriptions/test_model.py",)
JOINS = "tests/store/subscriptions/test_topics_joins.py"

MANY_TOPICS: dict[str, Bug] = {
    "topics: an object stays open when its opening is interrupted": Bug(
        f"{FOLDER}/shared.py", "            enter(opened)\n", "",
        (f"{JOINS}::test_an_interrupted_opening_leaves_no_object_open",
         f"{JOINS}::test_a_topic_whose_join_was_interrupted_has_one_object_and_a_close_closes_it"),
    ),
    "topics: a join that was interrupted leaves its object open": Bug(
        f"{FOLDER}/members.py", "                    self._opening[topic].close()", "                    pass",
        (f"{JOINS}::test_a_topic_whose_join_was_interrupted_has_one_object_and_a_close_closes_it",),
    ),
    "topics: a topic that was served stays first": Bug(
        f"{FOLDER}/members.py", "            self.ready.move_to_end(topic)\n", "            pass\n",
        (f"{TOPICS[0]}::test_a_busy_topic_does_not_hold_up_the_others",),
    ),
    "topics: after a look without more, a topic waits for no time": Bug(
        f"{FOLDER}/members.py", "            self._wakes.add(topic, until_ms)\n", "            pass\n",
        (f"{TOPICS[0]}::test_what_times_out_comes_also_before_a_timer_says_so",),
    ),
    "topics: a look that fails takes its topic out of the turns": Bug(
        f"{FOLDER}/members.py",
        "        except BaseException:  # passed on; an interrupt, too, leaves it ready\n"
        "            self.ready[topic] = None\n",
        "        except BaseException:\n",
        ("tests/store/subscriptions/test_topics_attacked.py",),
    ),
    "topics: news of a topic wakes nobody": Bug(
        f"{FOLDER}/members.py", "            self.ready[topic] = None\n            self._call()\n",
        "            self.ready[topic] = None\n",
        ("tests/store/subscriptions/test_topics_attacked.py",), hangs=True,
    ),
    "topics: all topics are looked at each time": Bug(
        f"{FOLDER}/members.py", "        for topic in self._wakes.take(self._now_ms()):",
        "        for topic in self.by_topic:",
        (f"{TOPICS[0]}::test_many_topics_cost_by_those_that_have_news",),
    ),
    "topics: one that is deleted ends the object": Bug(
        f"{FOLDER}/members.py", "        if not self.follows and len(self._deleted) == len(self.by_topic):",
        "        if self._deleted:",
        (f"{TOPICS[0]}::test_a_deleted_subscription_leaves_the_others",),
    ),
    "topics: what does not fit into a batch is given out with it": Bug(
        f"{FOLDER}/topics_receiving.py", "            if parts and size > left.size_bytes:", "            if False:",
        (f"{TOPICS[0]}::test_a_batch_ends_before_its_bytes_and_has_a_message_at_the_least",),
    ),
    "topics: what does not fit into a batch is lost until it times out": Bug(
        f"{FOLDER}/topics_receiving.py",
        "                part.member.undo(part.batch.receipts)\n                break\n", "                break\n",
        (f"{TOPICS[0]}::test_a_batch_ends_before_its_bytes_and_has_a_message_at_the_least",),
    ),
    "topics: receipts are kept for ever": Bug(
        f"{FOLDER}/receipt_topics.py", "        if is_full:\n            self._drop_old()\n", "",
        (f"{TOPICS[0]}::test_receipts_of_messages_that_are_over_are_not_kept",),
    ),
    "topics: receipts that removed messages may still use are forgotten": Bug(
        f"{FOLDER}/members.py", "found[at] = removed.has_between(int(begins[at]), int(ends[at]))", "pass",
        (f"{TOPICS[0]}::test_a_message_that_was_removed_while_a_consumer_had_it_is_acknowledged_by_its_receipt",),
    ),
    "topics: the first receipt after a range belongs to it": Bug(
        f"{FOLDER}/receipt_topics.py", "int(ascending[at:].searchsorted(end))",
        'int(ascending[at:].searchsorted(end, side="right"))',
        (f"{TOPICS[0]}::test_a_batch_has_the_topic_of_each_message",),
    ),
    "topics: a stale receipt of one topic, and the others are acknowledged": Bug(
        f"{FOLDER}/topics_acks.py", "    for member, mine in receipts.items() if len(receipts) > 1 else ():",
        "    for member, mine in ():",
        (f"{TOPICS[0]}::test_with_a_stale_receipt_no_message_of_any_topic_is_acknowledged_or_given_back",),
    ),
    "topics: each topic's acknowledgements have a force": Bug(
        f"{FOLDER}/topics_acks.py", "        if committing.fits:\n", "        if not committing:\n",
        (f"{TOPICS[0]}::test_all_acknowledgements_of_a_batch_share_one_frame",),
    ),
    "topics: a crash tears what several topics acknowledge together": Bug(
        f"{FOLDER}/topics_acks.py", "        if committing.fits:\n", "        if committing.fits and not parts:\n",
        ("tests/simulation/consumers/test_run.py::test_no_crash_tears_an_acknowledgement_of_two_topics",
         "tests/store/subscriptions/test_topics_attacked.py"),
    ),
    "topics: a list that is wrong makes some of its subscriptions": Bug(
        f"{FOLDER}/topics_opening.py", "        _check_same(subscriptions, topic, who, settings, given)\n    members",
        "    members",
        (f"{TOPICS[0]}::test_a_wrong_list_makes_no_subscription",),
    ),
    "topics: one that came while the store was closed begins at its end": Bug(
        f"{FOLDER}/topics_opening.py", "        if any(is_known) and not isinstance(starts, dict):",
        "        if False:",
        (f"{PATTERNS[0]}::test_what_came_while_the_store_was_closed_is_not_skipped",),
    ),
    "topics: the dead letters of a pattern come back": Bug(
        f"{FOLDER}/members.py", "topic != self.settings.dead_letter_topic and matches(topic)", "matches(topic)",
        (f"{PATTERNS[0]}::test_the_topic_of_dead_letters_never_joins",),
    ),
    "topics: one that cannot join ends the others": Bug(
        f"{FOLDER}/members.py", "            self.joining.pop(topic, None)\n", "            pass\n",
        (f"{PATTERNS[0]}::test_a_topic_with_other_settings_is_left_out_with_an_error",),
    ),
    "topics: one whose join was interrupted is told of no news": Bug(
        f"{FOLDER}/members.py", "                self.join(topic, ",
        "                if topic not in self.by_topic: self.join(topic, ",
        (f"{JOINS}::test_a_topic_whose_join_was_interrupted_joins",),
    ),
    "topics: a join beside a close opens a member": Bug(
        f"{FOLDER}/members.py", "            if self.closed:\n", "            if False:\n",
        (f"{JOINS}::test_a_close_beside_a_join_leaves_no_member_open",),
    ),
    "delays: due messages that a look cannot give are listed one by one": Bug(
        f"{FOLDER}/delays.py", "                lists_many |= not len(self._due)\n", "",
        (f"{QUEUE_ENDS}::test_due_messages_of_queues_that_nobody_read_are_passed_over_many_at_once",),
    ),
    "topics: new ones get the settings that the first were made with": Bug(
        f"{FOLDER}/members.py", "                return member._settings()\n", "                pass\n",
        (f"{PATTERNS[0]}::test_new_members_have_the_settings_that_the_others_were_given",),
    ),
    "topics: the names of all topics that ever were are kept": Bug(
        "store/read/topic_news.py", "        if len(self._met) > self._most_met:", "        if False:",
        (f"{PATTERNS[0]}::test_the_names_of_topics_that_are_gone_are_forgotten",),
    ),
    "one queue: what waits to come again comes from all queues": Bug(
        f"{FOLDER}/redelivery.py", "        rows = table.rows_of([queue_id])\n        states",
        "        rows = table.live()\n        states",
        (*QUEUE, *ONE_TOPIC_MODEL),
    ),
    "one queue: the list of what comes again grows": Bug(
        f"{FOLDER}/redelivery.py", "            self._tidy()\n", "            pass\n",
        (f"{QUEUE[0]}::test_what_waits_to_come_again_is_listed_a_few_times_at_the_most",),
    ),
    "one queue: in order, what did not fit is not listed": Bug(
        f"{FOLDER}/lines.py", "turn if queue_id is not None else turn[~np.isin(turn, receipts)]",
        "turn[~np.isin(turn, receipts)]",
        (f"{QUEUE[0]}::test_in_order_what_does_not_fit_comes_to_consumers_of_all_queues",),
    ),
    "one queue: the due messages of others are dropped": Bug(
        f"{FOLDER}/place_list.py",
        "        rows = self._rows(queue_id, count)\n        self._queues, self._offsets = np.delete",
        "        rows = np.arange(count)\n        self._queues, self._offsets = np.delete",
        (f"{QUEUE[0]}::test_a_waiting_consumer_gets_what_becomes_due",
         f"{QUEUE[0]}::test_what_is_due_in_other_queues_stays_for_them",), hangs=True,
    ),
    "one queue: a look at one of them ends that at all": Bug(
        f"{FOLDER}/scanner.py", "MOST_CHUNKS, is_first and only is None, False", "MOST_CHUNKS, is_first, False",
        (*QUEUE, *ONE_TOPIC_MODEL),
    ),
    "one queue: a consumer that waits is not told of what comes again": Bug(
        f"{FOLDER}/state.py", "(self.topic, ANY_QUEUE), *self.queue_calls.names()]", "(self.topic, ANY_QUEUE)]",
        (f"{QUEUE[0]}::test_a_waiting_consumer_gets_what_comes_again",), hangs=True,
    ),
    "one queue: what is kept for less time wakes nobody": Bug(
        f"{FOLDER}/state.py", "        self.queue_calls.gives_out(deadline_ms)\n", "",
        (f"{QUEUE[0]}::test_a_waiting_consumer_gets_what_comes_again",), hangs=True,
    ),
    "one queue: a call begins before it is sure to end": Bug(
        f"{FOLDER}/queue_receiving.py", "        self._is_cut = True  # the newest look has stopped before the end\n",
        "        self._is_cut = True\n        self.begin()\n",
        (f"{INTERRUPTS}::test_an_interrupted_receive_of_a_queue_is_forgotten",),
    ),
    "one queue: lines that nobody takes pile up": Bug(
        f"{FOLDER}/ordering.py", "        if len(self.freed) > len(self._lines):", "        if False:",
        (f"{QUEUE[0]}::test_lines_that_nobody_takes_do_not_pile_up",),
    ),
    "one queue: a filter that leaves out much ends the look": Bug(
        f"{FOLDER}/dispatcher.py", "self._has_expired or self._scanner.is_cut or self.delays.has_copies:",
        "self._has_expired or self.delays.has_copies:",
        (f"{QUEUE[0]}::test_one_that_left_out_much_is_looked_through_to_its_end",),
    ),
    "one queue: many that have expired end the look": Bug(
        f"{FOLDER}/dispatcher.py", "        if has_missed or self._has_expired or", "        if has_missed or",
        (f"{QUEUE_ENDS}::test_what_has_expired_behind_the_first_of_a_line_is_looked_through_to_the_end",),
    ),
    "one queue: something is kept for each that was asked for": Bug(
        f"{FOLDER}/scanner.py", "        elif self._parts.streams.get(self._topic, only) is not None:", "        else:",
        (f"{QUEUE[0]}::test_wrong_queues_are_refused_and_one_without_messages_has_none",),
    ),
}  # fmt: skip
