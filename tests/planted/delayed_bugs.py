"""Bugs of delayed delivery in the store."""

from __future__ import annotations

from .plant import Bug

CHANGES = ("tests/store/delayed/test_changes.py",)
DELIVERY = ("tests/store/delayed/test_delivery.py",)
OPENING = ("tests/store/delayed/test_opening.py",)
SUBSCRIBED = "tests/store/delayed/test_subscribed.py"
SKIPPING = ("tests/store/delayed/test_skipping.py",)
RETENTION = ("tests/store/delayed/test_retention.py",)
TURNS = ("tests/store/subscriptions/test_delayed.py",)

DELAYED: dict[str, Bug] = {
    "delayed: a subscription that asks is not told of what is durable": Bug(
        "store/delayed/topic.py",
        "    topic.delays.catch_up()\n    with topic.lock:\n        topic.decisions.settle()\n        places",
        "    with topic.lock:\n        topic.decisions.settle()\n        places", DELIVERY,
    ),
    "delayed: what a topic behind has not read is taken for delivered": Bug(
        "store/delayed/topic.py",
        "            pending |= later\n", "", OPENING,
    ),
    "delayed: what a topic behind has called due is pending again by another clock": Bug(
        "store/delayed/decisions.py", "return None if place in topic.reported else due_ms", "return due_ms",
        ("tests/store/delayed/test_clock_steps.py",),
    ),
    "delayed: a change that is not written needs room in the index": Bug(
        "store/delayed/decisions.py",
        "tracker.put_back(decision.queue_id, decision.offset & MOST_ENTRY, decision.own_ms)",
        "tracker.add_message(decision.queue_id, decision.offset & MOST_ENTRY, decision.own_ms)", CHANGES,
    ),
    "delayed: a scan goes by a message's own time, not by its new one": Bug(
        "store/delayed/topic_index.py",
        "        times = self.changes.times_of(places, times_ms)\n        is_later",
        "        times = times_ms\n        is_later", CHANGES,
    ),
    "delayed: changes behind the mark are not repeated": Bug(
        "store/delayed/opening.py", "if at >= mark.changes for", "if False for",
        CHANGES,
    ),
    "delayed: a record of changes is applied before it is durable": Bug(
        "store/delayed/decisions.py", "            request.result()\n", "", CHANGES,
    ),
    "delayed: a change that failed leaves the message out": Bug(
        "store/delayed/decisions.py",
        "            decision.is_refused = True  # no call", "            pass  #",
        ("tests/store/delayed/test_changes.py::test_cancel_that_cannot_be_written_leaves_the_message_pending",),
        hangs=True,
    ),
    "delayed: a cancellation of what is due says yes": Bug(
        "store/delayed/decisions.py", "        if due_ms <= max(now_ms, topic.given.told_ms) or not", "        if not",
        CHANGES,
    ),
    "delayed: what was cancelled is pending for an index that is behind": Bug(
        "store/delayed/decisions.py", "return place not in topic.changes.cancelled and place", "return place", OPENING,
    ),
    "delayed: an index that is ahead of its log is believed": Bug(
        "store/delayed/opening.py", "is_ahead = not all(map(_is_in,", "is_ahead = not any(map(_is_in,", OPENING,
    ),
    "delayed: trimmed messages are delivered": Bug(
        "store/delayed/due_list.py", "offsets < lows)", "offsets < 0 * lows)",
        ("tests/store/delayed/test_delivery.py",),
    ),
    "delayed: others are not told of what one has taken out": Bug(
        "store/delayed/topic.py", "        self._tell(others)\n", "", DELIVERY,
    ),
    "delayed: those who wait do not wake by themselves": Bug(
        "store/subscriptions/delays.py", "            return max(LEAST_S, due_s)\n",
        "            return FOREVER_S\n",
        (f"{SUBSCRIBED}::test_waiting_consumer_wakes_by_itself_when_a_message_is_due",),
        hangs=True,
    ),
    "delayed: those who wait are not told of a message that was moved": Bug(
        "store/delayed/decisions.py", "            topic.moved()\n", "            pass\n",
        (f"{SUBSCRIBED}::test_waiting_consumer_is_told_of_a_message_that_comes_earlier",),
        hangs=True,
    ),
    "delayed: what is being decided about is passed over": Bug(
        "store/delayed/topic.py",
        "        pending &= ~topic.records.are_open(places_of(queues, offsets))\n",
        "        pass\n", SKIPPING,
    ),
    "delayed: what comes now is passed over": Bug(
        "store/delayed/topic.py", "np.minimum(firsts, row_ends) - row_ends + ends", "ends + 0 * firsts", SKIPPING,
    ),
    "delayed: a precision takes what is due at once": Bug(
        "store/subscriptions/delays.py",
        "        self._turn = turn if is_all else None\n", "", SKIPPING,
    ),
    "delayed: a turn of a precision is over when the list had no room for more": Bug(
        "store/subscriptions/delays.py", " and not due.is_cut\n", "\n", TURNS,
    ),
    "delayed: retention removes what is wanted": Bug(
        "store/delayed/keeping.py", "            self._copy(list(self._wanted(lane, oldest)))\n", "            pass\n",
        RETENTION,
    ),
    "delayed: a copy is due while an index that is behind has not read it": Bug(
        "store/delayed/keeping.py", "                if topic.is_lagging:  #", "                if False:  #",
        RETENTION,
    ),
    "delayed: segments of pending messages are copied all the same": Bug(
        "store/delayed/keeping.py", "        return wanted_bytes > 0 and self.all_bytes <= MOST_WASTE",
        "        return False and self.all_bytes <= MOST_WASTE", RETENTION,
    ),
    "delayed: a copy goes before all subscriptions have it": Bug(
        "store/delayed/delays.py",
        "            kept[rows] = copies_to_keep(self, topic, queue_id, offsets, times_ms[rows])\n",
        "            pass\n", RETENTION,
    ),
    "delayed: retention removes records of changes with their segment": Bug(
        "store/delayed/keeping.py", "        self._move_records(lane, oldest)\n", "", RETENTION,
    ),
}  # fmt: skip
