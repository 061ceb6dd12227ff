"""Bugs of dead letters: their origin, sending them back, and the back-off."""

from __future__ import annotations

from .plant import Bug

STORIES = ("tests/store/subscriptions/test_origin.py",)
TABLE = "store/subscriptions/in_flight.py"
BACKOFF = ("tests/store/subscriptions/test_backoff.py",)
CONSOLE = ("tests/console/test_settled.py",)
BACK_AGAIN = ("tests/store/subscriptions/test_redrive.py",)
REDRIVING = "store/api/redriving.py"
ORIGIN = "store/subscriptions/origin.py"

USED_UP = ("tests/store/subscriptions/test_used_up.py",)
USED_UP_FILE = "store/subscriptions/used_up.py"

DEAD_LETTERS: dict[str, Bug] = {
    "dead letters: retention takes what was given out too often": Bug(
        USED_UP_FILE, "                if settings is not None and settings.max_attempts is not None:\n",
        "                if False:\n", USED_UP,
    ),
    "dead letters: what earlier openings gave out too often goes with its segment": Bug(
        USED_UP_FILE, "        if len(fresh):\n", "        if False:\n", USED_UP,
    ),
    "dead letters: a copy of what was given out too often goes with its segment": Bug(
        USED_UP_FILE, "ranges + (self._copied(lane, sealed, topics) if topics else [])", "ranges", USED_UP,
    ),
    "dead letters: a copy that is too old is forgotten, though it was given out too often": Bug(
        "store/delayed/wanted.py",
        "        if not delays.subscribers.save_used_up(topic.name, queue_id, begin, end):\n",
        "        if False:\n", USED_UP,
    ),
    "dead letters: a copy is forgotten while a consumer receives": Bug(
        "store/delayed/wanted.py", "queue_id, begin, end):\n            return wanted\n",
        "queue_id, begin, end):\n            pass\n", USED_UP,
    ),
    "dead letters: what was given out too often is copied first": Bug(
        "store/api/store.py", "removal.guards.insert(0, self._subscriptions().may_go)",
        "removal.guards.append(self._subscriptions().may_go)", USED_UP,
    ),
    "dead letters: retention takes them while the store closes": Bug(
        USED_UP_FILE, "                raise  # the next opening", "                pass  # the next opening", USED_UP,
    ),
    "dead letters: retention takes them when no file can be opened": Bug(
        USED_UP_FILE, "                if _may_pass(error):\n", "                if False:\n", USED_UP,
    ),
    "dead letters: a message that they do not take holds up retention": Bug(
        USED_UP_FILE, "                if _may_pass(error):\n", "                if True:\n", USED_UP,
    ),
    "dead letters: retention waits for a consumer": Bug(
        USED_UP_FILE, "            return True\n        return False\n",
        "            return True\n        return True\n",
        USED_UP,
    ),
    "dead letters: what a topic's age takes was given out too often": Bug(
        "store/topics/aging.py", "            if not self._save(mine):\n                break\n", "", USED_UP,
    ),
    "dead letters: after a restart what is too old is none": Bug(
        "store/subscriptions/expiring.py",
        "            found[found] = ~self._are_used_up(queues[found], batch.offsets[found])\n",
        "            pass\n", USED_UP,
    ),
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
        "return _packed(_decoded(properties) | mine)", STORIES,
    ),
    "dead letters: a user's property wins": Bug(
        ORIGIN, "return _packed(without_origin(properties) | mine)",
        "return _packed(mine | _decoded(properties))", STORIES,
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
    "redrive: it goes on while others write": Bug(
        "store/api/redriving.py", "in_vain > self._queue_count()", "in_vain < 0", BACK_AGAIN,
    ),
    "redrive: it ends before all queues had a turn": Bug(
        "store/api/redriving.py", "in_vain > self._queue_count()", "in_vain > 0", BACK_AGAIN,
    ),
    "redrive: two calls share what they find": Bug(
        "store/api/redriving.py", "with self._subscriptions.redriving, self", "with self", BACK_AGAIN,
    ),
    "back-off: what has timed out comes when its consumer is closed": Bug(
        "store/subscriptions/state.py",
        "            self.expire()  # what has timed out before has failed, and rests\n", "", BACKOFF,
    ),
    "back-off: what has timed out is ready until a look meets it": Bug(
        "store/subscriptions/backlog.py", "        is_later |= are_over &", "        is_later &= ~are_over &",
        BACKOFF,
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
    "back-off: a nack rests by another attempt": Bug(
        "store/subscriptions/backoff.py", "np.clip(attempts - 1, 0,", "np.clip(attempts, 0,", BACKOFF,
    ),
    "back-off: a dead letter rests": Bug(
        "store/subscriptions/backoff.py", "np.where(attempts >= most_attempts, 0, found)", "found", BACKOFF,
    ),
    "back-off: what times out does not rest": Bug(
        TABLE, "        if rests_of is not None:\n", "        if False:\n", BACKOFF,
    ),
    "back-off: nobody may acknowledge what rests": Bug(
        TABLE, "HELD_BY_CONSUMER = RowState.OUT, RowState.LATE, RowState.RESTING\n",
        "HELD_BY_CONSUMER = RowState.OUT, RowState.LATE\n", BACKOFF,
    ),
    "back-off: what a closed consumer had rests": Bug(
        TABLE, "        self._owners[rows] = NO_OWNER  # last: until here a call that comes again finds them\n", "",
        BACKOFF,
    ),
    "back-off: nobody wakes when a rest is over": Bug(
        TABLE, "        self.next_ms = min(self.next_ms, int(until_ms.min(initial=NEVER)))\n", "", BACKOFF,
    ),
    "back-off: a delay that is given does not count": Bug(
        "store/subscriptions/state.py", "None if delay_ms or settings is None else", "None if settings is None else",
        BACKOFF,
    ),
    "back-off: a restart forgets it": Bug(
        "store/subscriptions/settings.py", "            known[\"backoff_ms\"] = tuple(known[\"backoff_ms\"])\n",
        "            del known[\"backoff_ms\"]\n", BACKOFF,
    ),
    "console: a change of a topic's settings is only shown": Bug(
        "stratalog/console/settled.py", "queues or None}", "queues or None} if queues is None else {}", CONSOLE,
    ),
    "console: redrive sends all queues": Bug(
        "stratalog/console/settled.py", "queue_id=queue_id, max_messages=count", "max_messages=count", CONSOLE,
    ),
}  # fmt: skip
