"""Bugs of what damage hides of the store's own records: settings, ids, subscriptions, copies."""

from __future__ import annotations

from .plant import Bug

FILE = "tests/store/topics/test_damaged_records.py"
COPIES = "store/delayed/copies.py"
TOLD = (f"{FILE}::test_a_consumer_hears_of_a_damaged_copy_once_and_gets_all_others",)
BACK = (f"{FILE}::test_a_damaged_copy_comes_again_when_its_file_is_put_back",)
SETTINGS = (f"{FILE}::test_settings_in_a_segment_that_nobody_can_read_are_not_taken_for_the_defaults",)
FAILED = ("tests/store/rounds/test_errors.py::test_another_lane_fails_while_a_round_takes_what_is_queued",)

DAMAGED_RECORDS: dict[str, Bug] = {
    "damage: settings that it hides are the defaults": Bug(
        "store/topics/table.py",
        "            first, end = reader.finder.whole_bounds(stream)\n            found",
        "            first, end = reader.bounds(stream)\n            found", SETTINGS,
    ),
    "damage: a topic whose settings it hides is not there": Bug(
        "store/topics/table.py", "to read them says so\n            return False\n",
        "to read them says so\n            return True\n", SETTINGS,
    ),
    "damage: ids that it hides are free again": Bug(
        "store/topics/id_windows.py", "finder.whole_bounds(stream) if is_whole else finder.bounds(stream)",
        "finder.bounds(stream)", (f"{FILE}::test_ids_in_a_segment_that_nobody_can_read_are_not_free_again",),
    ),
    "damage: a subscription that it hides is made anew": Bug(
        "store/subscriptions/journal.py",
        "reader.bounds(stream) if pass_damage else reader.finder.whole_bounds(stream)", "reader.bounds(stream)",
        (f"{FILE}::test_a_subscription_in_a_segment_that_nobody_can_read_is_not_made_anew",),
    ),
    "damage: nobody hears of a damaged copy": Bug(
        COPIES, "                    self.damage, self._damaged_at = error, at\n", "                    pass\n", TOLD,
    ),
    "damage: a consumer hears of a damaged copy for ever": Bug(
        "store/subscriptions/delays.py", "        if found is self._told:\n", "        if found is None:\n", TOLD,
    ),
    "damage: only the first consumer hears of a damaged copy": Bug(
        "store/subscriptions/delays.py", "        self._told = None\n        pointer", "        pointer", TOLD,
    ),
    "damage: a damaged copy is trimmed": Bug(
        COPIES, "return low if self.damage is None else min(low, self._damaged_at)", "return low", BACK,
    ),
    "rounds: one waits for ever for a queue that another lane's failure has closed": Bug(
        "store/log/flusher.py", "                break  # it gives nothing any more: the others have their answers\n",
        "                time.sleep(NAP_S)\n", FAILED, hangs=True,
    ),
    "rounds: one goes on when another lane has failed meanwhile": Bug(
        "store/log/round_part.py", "poison = lane.poison or queue.refusal", "poison = lane.poison", FAILED,
    ),
}  # fmt: skip
