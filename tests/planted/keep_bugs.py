"""Bugs of retention that knows consumers: its counts, and topics that keep what is not acknowledged."""

from __future__ import annotations

from .plant import Bug

COUNTS = ("tests/store/subscriptions/test_removed_counts.py",)
BESIDE = ("tests/store/subscriptions/test_counts_beside_consumers.py",)
FILE = "tests/store/topics/test_keep.py"
OUTLIVES = (f"{FILE}::test_what_one_subscription_has_not_acknowledged_outlives_size",)
MODEL = (f"{FILE}::test_nothing_is_lost_or_comes_again_by_a_model",)
IN_USE = (f"{FILE}::test_an_ordered_subscription_in_use_gets_new_copies_before_what_follows_them",)
CANCELLED = (f"{FILE}::test_cancelled_and_trimmed_messages_are_not_kept",)
FULL = (f"{FILE}::test_a_topic_that_keeps_too_much_takes_no_message_and_names_the_subscription",)
COPIES = (f"{FILE}::test_a_topic_is_full_of_copies_too",)
LARGER = (f"{FILE}::test_a_larger_cap_or_none_lets_a_full_topic_go_on",)
LIFE_COUNTS = "store/subscriptions/life_counts.py"
REMOVED = "store/subscriptions/removed.py"
WANTED = "store/delayed/wanted.py"
KEEPING = "store/delayed/keeping.py"

KEEPING_TOPICS: dict[str, Bug] = {
    "removed counts: trimmed messages count": Bug(
        REMOVED, "        begin = max(begin, stream.low)\n", "", COUNTS,
    ),
    "removed counts: consumers see a trim by age before it is counted": Bug(
        "store/api/trimming.py", "shows=before_shown is None", "shows=True", BESIDE,
    ),
    "removed counts: consumers see that segments are gone before these are counted": Bug(
        "store/log/removal.py",
        "        try:\n            for count in self.counters:\n                count(lane, gone)\n"
        "        finally:\n            lane.forget_oldest(len(gone))\n",
        "        lane.forget_oldest(len(gone))\n        for count in self.counters:\n            count(lane, gone)\n",
        BESIDE,
    ),
    "removed counts: a trim by age is counted and not shown": Bug(
        "store/api/trimming.py", "                    request.show()\n", "                    pass\n", BESIDE,
    ),
    "removed counts: acknowledgements on their way do not count": Bug(
        "store/subscriptions/progress.py", "out = np.union1d(under_way, spared)", "out = spared", COUNTS,
    ),
    "removed counts: those above the mark do not count as acknowledged": Bug(
        "store/subscriptions/progress.py", "end - low - acked.above.range_cardinality(low, end)", "end - low", COUNTS,
    ),
    "removed counts: copies count": Bug(
        REMOVED, "            found += [low + (there - least), low", "            found += [low", COUNTS,
    ),
    "removed counts: cancelled messages count": Bug(
        REMOVED, "low + (np.frombuffer(cancelled.to_array(), np.int64) - least)]", "_NONE]", COUNTS,
    ),
    "removed counts: each removal is logged": Bug(LIFE_COUNTS, "return not before", "return True", COUNTS),
    "removed counts: a subscription of the same name goes on with the count": Bug(
        LIFE_COUNTS, "known[1] if known is not None and known[0] == life else 0",
        "known[1] if known is not None else 0", COUNTS,
    ),
    "removed counts: nobody is told what was removed": Bug(
        "store/log/removal.py", "            count(lane, gone)\n", "            pass\n", COUNTS,
    ),
    "removed counts: only subscriptions in memory are counted": Bug(
        "store/subscriptions/registry.py", "        for name in self._names_of(topic):\n            try:\n",
        "        for name in [one for of, one in list(self._known) if of == topic]:\n            try:\n", COUNTS,
    ),
    "keep: retention does not know of it": Bug(
        WANTED, "if stream.topic in kept and not is_hidden(stream.topic)]", "if False]", OUTLIVES,
    ),
    "keep: copies go with their segments": Bug(
        WANTED, "        yield from _copied(delays, kept, topic, sealed, only_delayed=has_over)\n",
        "        yield from ()\n", MODEL),
    "keep: cancelled messages are kept": Bug(
        WANTED, "    if topic is None:\n        return una", "    if True:\n        return una", CANCELLED,
    ),
    "keep: a consumer finds only copies of before it came": Bug(
        "store/subscriptions/delays.py", "self._parts.delays.find(self._name) if self._parts.delays else None", "None",
        OUTLIVES,
    ),
    "keep: new messages of a line come before copies of older ones": Bug(
        "store/subscriptions/scanner.py", "            self._is_held_back = True\n", "            pass\n", IN_USE,
    ),
    "keep: messages that follow one another are read one after the next": Bug(
        "store/delayed/messages.py", "            at += found[-1].offset + 1 - offset\n            yield from found\n",
        "            at += found[-1].offset + 1 - offset\n            yield found[0]\n", MODEL,
    ),
    "keep: a change of the setting is noticed at the next opening": Bug(
        "store/topics/table.py", "self._keeping = _changed(before, topic, self._known.get(topic, NOT_CONFIGURED))",
        "self._keeping = before", LARGER,
    ),
    "keep: copies do not fill a topic": Bug(
        KEEPING, "found + (0 if index is None else index.copies.size_bytes)", "found", COPIES,
    ),
    "keep: kept segments do not fill a topic": Bug(
        KEEPING, "look.topics[topic] if look is not None and look.is_kept",
        "look.topics[topic] if False and look.is_kept", FULL,
    ),
    "keep: a full topic takes the messages of queues that it has": Bug(
        "store/topics/full.py", "        self._looks_closely(bool(errors))\n", "", FULL,
    ),
    "keep: a full topic takes columns": Bug(
        "store/api/columns.py", "            self._full.check([topic for topic, _ in names])\n", "            pass\n",
        FULL,
    ),
    "keep: a full topic takes batches": Bug(
        "store/api/appender.py",
        "        self._configured.full.check([topic for topic, _ in names], acknowledged)\n        known = [",
        "        known = [", FULL,
    ),
    "keep: a full topic stays full": Bug(
        "store/topics/full.py", "self._errors, self._most = errors,",
        "self._errors, self._most = self._errors or errors,", FULL,
    ),
    "keep: the subscription with the smallest backlog is named": Bug(
        "store/subscriptions/registry.py", "return max(backlogs)[1], max(backlogs)[0]",
        "return min(backlogs)[1], max(backlogs)[0]", FULL,
    ),
}  # fmt: skip
