"""Bugs of the settings of topics."""

from __future__ import annotations

from .plant import Bug

TOPICS = ("tests/store/topics/test_settings.py",)
AGES = ("tests/store/topics/test_ages.py",)
TTL = ("tests/store/topics/test_ttl.py",)
COUNTS = ("tests/store/subscriptions/test_expired_counts.py",)
TYPES = ("tests/endpoint/rocketmq/test_protocol.py",)
TABLE = "store/topics/table.py"
AGING = "store/topics/aging.py"
OUTLIVING = "store/delayed/outliving.py"
DISPATCHER = "store/subscriptions/dispatcher.py"
EXPIRING = "store/subscriptions/expiring.py"

SETTINGS_OF_TOPICS: dict[str, Bug] = {
    "topic settings: types of messages are forgotten with the process": Bug(
        "store/topics/settings.py", '                given.get("types"),\n', "                None,\n", TOPICS,
    ),
    "topic settings: types are kept in the order in which they were given": Bug(
        "store/topics/settings.py", "tuple([one for one in MESSAGE_TYPES if one in found])", "tuple(found)", TOPICS,
    ),
    "topic settings: a route says that all types are taken": Bug(
        "endpoint/rocketmq/routing.py", "accept_message_types.extend(self._topics.types_of(topic))",
        "accept_message_types.extend([1, 2, 3, 4])", TYPES,
    ),
    "topic settings: a message of another type is taken": Bug(
        "endpoint/rocketmq/sending.py", "        check_accepted(message, self._topics.types_of(topic))\n", "", TYPES,
    ),
    "topic settings: a delayed message counts as a normal one": Bug(
        "endpoint/rocketmq/checking.py",
        'return MessageType.DELAY if system.HasField("delivery_timestamp") else MessageType.NORMAL',
        "return MessageType.NORMAL", TYPES,
    ),
    "topic settings: a change is remembered, and not written": Bug(
        TABLE, "            self._write(self._hidden.find_or_make(hidden_topic(TOPIC_KIND, topic)), settings.pack())\n",
        "            self._hidden.find_or_make(hidden_topic(TOPIC_KIND, topic))\n", TOPICS,
    ),
    "topic settings: the oldest record counts": Bug(TABLE, "reader.read(stream, end - 1, 1, 1)",
        "reader.read(stream, first, 1, 1)", TOPICS),
    "topic settings: an older record stays": Bug(
        TABLE, "            self._hidden.trim(stream, offset)", "            pass", TOPICS,
    ),
    "topic settings: retention takes them": Bug(
        TABLE, "                    self._write_again(stream)\n                if begin + count > stream.low:\n"
        "                    return False\n", "                    pass\n", TOPICS,
    ),
    "topic settings: they hold retention up": Bug(
        TABLE, "                with self._lock:\n                    self._write_again(stream)\n", "", TOPICS,
    ),
    "topic settings: they outlive their topic": Bug(
        "store/api/trimming.py", "self._configured.forget(name) or bool(changes)", "bool(changes)", TOPICS,
    ),
    "topic settings: a deleted topic's settings are remembered": Bug(
        TABLE, "            self._known.pop(topic, None)\n            self._keeping = None\n",
        "            self._keeping = None\n", TOPICS,
    ),
    "topic settings: a reader remembers what it has read once": Bug(
        TABLE, "if self._may_write and topic not in self._unsure:", "if topic not in self._unsure:", TOPICS,
    ),
    "topic settings: what is read after an interrupted change is remembered": Bug(
        TABLE, "if self._may_write and topic not in self._unsure:", "if self._may_write:", TOPICS,
    ),
    "topic settings: a queue is made that the topic does not have": Bug(
        TABLE, "queue_id >= queues:", "queue_id > queues:", TOPICS,
    ),
    "topic settings: the first bad row of a batch is another one": Bug(
        "store/api/appender.py", "error.row = place", "error.row = 0", TOPICS,
    ),
    "topic settings: a column's bad row is that of the table": Bug(
        "store/api/stream_table.py", "_in_row(str(error), unknown[error.row or 0], index)",
        "InvalidTopic(str(error)).in_row(unknown[error.row or 0])", TOPICS,
    ),
    "topic settings: messages without a queue go to the used ones": Bug(
        "store/api/partitioner.py", "        if queues is not None:\n            return range(queues)\n", "", TOPICS,
    ),
    "topic settings: a queue with messages is taken away": Bug(
        "store/api/topic_calls.py", "last >= settings.queues", "last > settings.queues", TOPICS,
    ),
    "topic settings: a topic without a message is not listed": Bug(
        "store/api/fetcher.py", " | {*self.configured})", ")", TOPICS,
    ),
    "topic settings: a topic that was made again is not listed": Bug(
        TABLE, "            self._names.add((topic,))\n", "", TOPICS,
    ),
    "topic settings: a change does not see a queue that is just made": Bug(
        "store/api/appender.py", "                if self._configured.turn == turn:\n", "                if True:\n",
        ("tests/store/topics/test_new_queues.py",),
    ),
    "ages: what is exactly as old as its topic's age goes": Bug(
        AGING, "segment.record.newest_ms >= limit_ms", "segment.record.newest_ms > limit_ms", AGES,
    ),
    "ages: topics of other ages in the segment go too": Bug(
        AGING, "if stream.topic in topics and stream not in held]", "if stream not in held]", AGES,
    ),
    "ages: what somebody has still to get goes": Bug(
        AGING, "None if wanted is None or begin >= end else wanted.first(stream, begin, end)", "None", AGES,
    ),
    "ages: a queue that was held never goes on": Bug(
        AGING, "                self.next = min(self.next, sequence)\n", "", AGES,
    ),
    "ages: a longer one keeps nothing": Bug(AGING, "one > default}", "one > default + (1 << 60)}", AGES),
    "ages: a change is for later segments alone": Bug(
        AGING, "before if is_same and before else _AgeInLane(frozenset(names))",
        "before or _AgeInLane(frozenset(names))",
        AGES,
    ),
    "ages: a topic that was not read yet has none": Bug(
        AGING, "        if not self._is_known:\n            return True\n", "", AGES,
    ),
    "ages: a queue is held for what its topic does not keep any more": Bug(
        AGING, "is_over = offset < stream.low or keeps_all != wanted.keeps(stream)", "is_over = offset < stream.low",
        AGES,
    ),
    "ages: copies do not hold their queue": Bug(
        OUTLIVING, "np.concatenate([copies[copies < end], here", "np.concatenate([here", AGES,
    ),
    "ages: delayed messages do not hold their queue": Bug(
        OUTLIVING, "return self._later.get(stream.number, np.empty(0, np.int64))", "return np.empty(0, np.int64)", AGES,
    ),
    "ages: what they took is not counted": Bug(
        "store/topics/aging.py", "                self._count(segment, mine)\n", "                pass\n", AGES,
    ),
    "ttl: what was read ahead comes": Bug(
        DISPATCHER, "        if self._ttl.is_used:\n            whole",
        "        if False:\n            whole", TTL,
    ),
    "ttl: the quick way passes it by": Bug(
        DISPATCHER, " or self._has_missed or self._ttl.is_used:", " or self._has_missed:", TTL,
    ),
    "ttl: a delayed message ages while it waits": Bug(
        EXPIRING, "found &= ~has_time | (times_ms < limit_ms)", "found &= found", TTL,
    ),
    "ttl: a moved message ages from its first time on": Bug(
        "store/delayed/messages.py", "moved | are_among(places, changes.come)", "moved & False", TTL,
    ),
    "ttl: what comes again does not expire": Bug(
        EXPIRING, "        if not over.any():\n",
        "        over[: len(used)] = False\n        if not over.any():\n", TTL,
    ),
    "ttl: a change is noticed at the next opening": Bug(
        "store/topics/table.py", "                ttl.is_used = True\n", "                pass\n", TTL,
    ),
    "ttl: what has expired is kept for subscriptions": Bug(
        "store/delayed/wanted.py", "whole = [stream for stream in content.kept if not has_expired(",
        "whole = [stream for stream in content.kept if True or not has_expired(", TTL,
    ),
    "ttl: what retention takes of it counts as lost": Bug(
        "store/subscriptions/removed.py", "            if left and has_expired:\n", "            if False:\n", TTL,
    ),
    "ttl: what retention has counted counts again once a receive meets it": Bug(
        "store/subscriptions/state.py", "        known = ascending < self.lost_below.get(queue_id, 0)\n",
        "        known = ascending < 0\n", COUNTS,
    ),
    "ttl: a copy among messages that retention has counted does not count": Bug(
        EXPIRING, "            copied[rows] = self._delays.are_kept(queue_id, places.offsets[rows])\n",
        "            pass\n", COUNTS,
    ),
    "ttl: a receive that retention overtakes counts what it has read": Bug(
        EXPIRING, "        count = self._state.count_wanted(queue_id, ascending)\n",
        "        count = len(ascending)\n", COUNTS,
    ),
}  # fmt: skip
