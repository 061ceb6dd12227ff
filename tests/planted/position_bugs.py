"""Bugs of what a subscription says of itself, and of acknowledging up to a message."""

from __future__ import annotations

from .plant import Bug

TESTS = ("tests/store/subscriptions/test_positions.py",)
POSITIONS_FILE = "store/subscriptions/positions.py"
TABLE = "store/subscriptions/in_flight.py"

TOLD = "store/subscriptions/told_counts.py"
OF_TOLD = ("tests/store/subscriptions/test_told_counts.py",)

POSITIONS: dict[str, Bug] = {
    "counts: those of an earlier opening are told": Bug(
        TOLD, "                disk.remove(self._path)\n", "                pass\n", OF_TOLD,
    ),
    "counts: those of an earlier life are told": Bug(
        "store/subscriptions/registry.py", "told.get((topic, name, cursor.life))",
        "next((told[key] for key in told if key[:2] == (topic, name)), None)", OF_TOLD,
    ),
    "counts: the last ones are not told": Bug(
        "store/api/subscription_list.py", "                    self._told_counts.tell()\n",
        "                    pass\n", OF_TOLD,
    ),
    "positions: what is acknowledged above the mark is not counted": Bug(
        POSITIONS_FILE, "0 if above is None else len(above)", "0", TESTS,
    ),
    "positions: a durable acknowledgement is not counted yet": Bug(
        "store/subscriptions/inspecting.py", "            state.take_in()\n", "", TESTS,
    ),
    "positions: the list of subscriptions is behind": Bug(
        "store/subscriptions/registry.py", "            if state is not None:\n                state.take_in()\n", "",
        TESTS,
    ),
    "positions: a message that timed out counts as in flight": Bug(
        POSITIONS_FILE, " & (state.table.deadlines(rows) > now_ms)", "", TESTS,
    ),
    "positions: deadlines are told by the wrong clock": Bug(
        POSITIONS_FILE, "table.deadlines(found) + behind_ms", "table.deadlines(found)", TESTS,
    ),
    "positions: messages of others are acknowledged up to a message": Bug(
        TABLE, " & (self._owners[: self._rows] == owner)\n        found: Int64s = self._columns[0",
        "\n        found: Int64s = self._columns[0", TESTS,
    ),
    "positions: messages of other queues are acknowledged up to a message": Bug(
        TABLE, "mine & (queues == queue_id) & (offsets <= offset)", "mine & (offsets <= offset)",
        TESTS,
    ),
    "positions: later messages are acknowledged up to a message": Bug(
        TABLE, " & (offsets <= offset)]", "]", TESTS,
    ),
    "positions: a removed message is stale for those who acknowledge up to it": Bug(
        "store/subscriptions/state.py",
        "            if receipt in self.table.removed:\n                return NOTHING\n", "", TESTS,
    ),
    "positions: the oldest message is an acknowledged one": Bug(
        POSITIONS_FILE, "known.acked(queue_id).first_missing(first)", "max(first, known.marks.get(queue_id, 0))", TESTS,
    ),
    "positions: rates are of the time since the newest look": Bug(
        POSITIONS_FILE, "took_s = now_s - older.time_s", "took_s = now_s - newer.time_s", TESTS,
    ),
    "positions: rates of deleted subscriptions stay": Bug(
        "store/subscriptions/registry.py", "            self._rates.forget(key)\n", "", TESTS,
    ),
}  # fmt: skip
