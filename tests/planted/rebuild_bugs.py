"""Bugs in what makes lost footers and delayed indexes again."""

from __future__ import annotations

from .plant import Bug

FOOTERS = "tests/store/rebuild/test_footers.py"
DELAYS = "tests/store/rebuild/test_delays.py"

REBUILD: dict[str, Bug] = {
    "rebuild: a footer is made of messages with wrong bytes": Bug(
        "store/rebuild/looking.py", "if found.whole < kept or header.first_entry != count:", "if False:",
        (f"{FOOTERS}::test_footer_behind_damaged_messages_is_left_and_told",),
    ),
    "rebuild: a footer begins with offset 0 where nothing tells of it": Bug(
        "store/rebuild/placing.py", "if sequence == self._lane.begins_at == 1 else None", "if True else None",
        (f"{FOOTERS}::test_first_footer_is_left_where_retention_has_removed_what_tells_of_it",),
    ),
    "rebuild: records do not count": Bug(
        "store/rebuild/placing.py", "        trimmed = streams.trimmed_at(ends)\n", "        trimmed = {}\n",
        (f"{FOOTERS}::test_lost_footers_are_made_again_byte_for_byte",),
    ),
    "rebuild: a footer is put into the log whatever its bytes": Bug(
        "store/rebuild/footers.py",
        "    if len(content) != made.size_bytes or checksum64(content) != made.checksum:\n", "    if False:\n",
        (f"{FOOTERS}::test_footer_that_was_damaged_on_its_way_is_not_put_into_the_log",),
    ),
    "rebuild: what is due counts as pending": Bug(
        "store/rebuild/delays.py", "mine = (of_topic == number) & (rows.times_ms > part.after_ms)",
        "mine = of_topic == number", (DELAYS,),
    ),
    "rebuild: the mark of an index lies behind what is not in it": Bug(
        "store/api/rebuilding.py", "            place = Place(at.sequence + 1, 0)\n",
        "            place = Place(at.sequence + 2, 0)\n", (DELAYS,),
    ),
}  # fmt: skip
