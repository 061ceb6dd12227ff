"""Bugs of losses: changes of delayed messages that are lost, and what else is left of streams."""

from __future__ import annotations

from .plant import Bug

LOST = "tests/store/delayed/test_lost_messages.py"
TRIMMED = ("tests/store/test_trim_repair.py",)

LOSSES: dict[str, Bug] = {
    "losses: a change of a lost delayed message counts for the one that gets its offset": Bug(
        "store/delayed/opening.py", "ChangesReader(partial(parts.streams.end_at_opening, topic))", "ChangesReader()",
        (f"{LOST}::test_a_change_of_a_lost_message_is_none_of_the_one_that_gets_its_offset",),
    ),
    "losses: that a change of a lost message counts no more is not said in the log": Bug(
        "store/delayed/opening.py", " if reader.is_cut else end", " if False else end",
        (f"{LOST}::test_it_is_so_for_good",),
    ),
    "losses: that a change of a lost message counts no more is not forced": Bug(
        "store/api/store.py", "            self._appender.flush()  # also with durability \"os\", see `_forget_lost`\n",
        "            pass\n", (f"{LOST}::test_it_is_so_for_good",),
    ),
    "losses: an index's files are taken over though a sealed segment has lost its end": Bug(
        "store/delayed/opening.py", "        return place.entry <= sealed[at].record.entries\n", "        pass\n",
        (f"{LOST}::test_the_files_of_an_index_are_not_taken_over_if_they_have_lost_messages",),
    ),
    "losses: the number of a stream of which a record alone is left is given again": Bug(
        "store/recovery/lane_streams.py", "                self.know(record.number + 1, behind, path)\n",
        "                pass\n", TRIMMED,
    ),
    "losses: a name that only a lost footer and a frame behind it have is made up": Bug(
        "store/recovery/lane_streams.py", "        for frame in frames_of(self._disk, file):\n",
        "        for frame in ():\n",
        ("tests/store/test_small_footers.py::test_a_queue_that_only_a_lost_footer_names_keeps_its_name",),
    ),
    "losses: a footer of which one entry is damaged names no stream": Bug(
        "store/recovery/lane_streams.py", "footer = readable_footer(segment, file.record)",
        "footer = whole_footer(segment, file.record)",
        ("tests/store/test_repair_again.py::test_names_stay_though_the_entries_of_each_footer_that_has_them_are_damaged",),
    ),
}  # fmt: skip
