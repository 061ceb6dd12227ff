"""Bugs of dead letters: their origin, sending them back, and the back-off."""

from __future__ import annotations

from .plant import Bug

STORIES = ("tests/store/subscriptions/test_origin.py",)
TABLE = "store/subscriptions/in_flight.py"
CONSOLE = ("tests/console/test_settled.py",)
BACK_AGAIN = ("tests/store/subscriptions/test_redrive.py",)
REDRIVING = "store/api/redriving.py"
ORIGIN = "store/subscriptions/origin.py"

DEAD_LETTERS: dict[str, Bug] = {
    "dead letters: the first time is that of the newest attempt": Bug(
        TABLE, "np.where(firsts == UNKNOWN_MS, lasts, firsts)", "lasts", STORIES,
    ),
    "dead letters: one that is redelivered forgets its story": Bug(
        "store/subscriptions/dispatcher.py", "                stories = state.table.stories(rows)\n", "", STORIES,
    ),
    "dead letters: what is on its way to them forgets its story": Bug(
        "store/subscriptions/redelivery.py", ", stories=table.stories(rows))", ")", STORIES,
    ),
    "dead letters: a message alone does not know when it was given out": Bug(
        TABLE, "self._owner_of[begin], self._given[begin] = owner, given_ms", "self._owner_of[begin] = owner", STORIES,
    ),
    "dead letters: a nack without a reason leaves the one before": Bug(
        "store/subscriptions/state.py", "            if len(self.reasons) or reason is not None:\n",
        "            if reason is not None:\n", STORIES,
    ),
    "dead letters: an older story stays": Bug(
        ORIGIN, "return _packed(without_origin(properties) | mine)",
        "return _packed(({} if properties is None else json.loads(properties)) | mine)", STORIES,
    ),
    "dead letters: a user's property wins": Bug(
        ORIGIN, "return _packed(without_origin(properties) | mine)",
        "return _packed(mine | ({} if properties is None else json.loads(properties)))", STORIES,
    ),
    "dead letters: all reasons stay in memory": Bug(
        "store/subscriptions/state.py", "                self.reasons.forget_unused(self.table.reasons)\n",
        "                pass\n", STORIES,
    ),
    "dead letters: a reason in use is forgotten": Bug(
        "store/subscriptions/stories.py", "in np.unique(used()).tolist()",
        "in np.unique(used()).tolist()[1:-1]", STORIES,
    ),
    "dead letters: times go by the clock that may jump": Bug(
        "store/subscriptions/moving.py", "first_ms + back_ms", "first_ms", STORIES,
    ),
    "redrive: a message is not counted as sent back": Bug(
        REDRIVING, "    tx.ack(int(batch.receipts[at]), sub)\n", "", BACK_AGAIN,
    ),
    "redrive: it is sent back before it is counted so": Bug(
        REDRIVING, "    tx.ack(int(batch.receipts[at]), sub)\n",
        "    tx.commit()\n    tx.__init__(tx._appender, tx._subscriptions, tx._fetcher)\n"
        "    tx.ack(int(batch.receipts[at]), sub)\n", BACK_AGAIN,
    ),
    "redrive: what fails again at once goes round": Bug(
        REDRIVING, "offset < ends.get(queues[name], 0)", "queues[name] in ends", BACK_AGAIN,
    ),
    "redrive: the dead letters' story stays": Bug(
        REDRIVING, "properties=without_origin(extras.properties) or None",
        "properties=__import__('json').loads(extras.properties)", BACK_AGAIN,
    ),
    "redrive: one that is left counts as sent": Bug(
        REDRIVING, "        self._sent += taken\n", "        self._sent += len(rows)\n", BACK_AGAIN,
    ),
    "redrive: the other queues go as well": Bug(
        REDRIVING, "for queue_id, end in ends.items() if queue_id == self._queue_id}",
        "for queue_id, end in ends.items()}", BACK_AGAIN,
    ),
    "redrive: half of a batch that is too large is forgotten": Bug(
        REDRIVING, "            self._send(sub, batch, rows[half:])\n", "", BACK_AGAIN,
    ),
    "console: a change of a topic's settings is only shown": Bug(
        "stratalog/console/settled.py", "queues or None}", "queues or None} if queues is None else {}", CONSOLE,
    ),
    "console: redrive sends all queues": Bug(
        "stratalog/console/settled.py", "queue_id=queue_id, max_messages=count", "max_messages=count", CONSOLE,
    ),
}  # fmt: skip
