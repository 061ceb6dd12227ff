"""Bugs of the settings of topics."""

from __future__ import annotations

from .plant import Bug

TOPICS = ("tests/store/topics/test_settings.py",)
TABLE = "store/topics/table.py"

SETTINGS_OF_TOPICS: dict[str, Bug] = {
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
        TABLE,
        "            self._known.pop(topic, None)\n            self._keeping = None\n            self._hidden.trim",
        "            self._keeping = None\n            self._hidden.trim", TOPICS,
    ),
    "topic settings: a reader remembers what it has read once": Bug(
        TABLE, "                if self._may_write:\n                    self._known", "                if True:\n"
        "                    self._known", TOPICS,
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
}  # fmt: skip
