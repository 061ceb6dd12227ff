"""Bugs of dead letters: their origin, sending them back, and the back-off."""

from __future__ import annotations

from .plant import Bug

STORIES = ("tests/store/subscriptions/test_origin.py",)
TABLE = "store/subscriptions/in_flight.py"
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
}  # fmt: skip
