"""Bugs of full disks: the reserve that only records may use, and what frees space."""

from __future__ import annotations

from .plant import Bug

RESERVE = "tests/store/test_reserve.py"

FULL: dict[str, Bug] = {
    "full disk: the reserve is used by appends": Bug(
        "store/log/flusher.py", "if reserve is not None and may_use_reserve(topic):", "if reserve is not None:",
        (f"{RESERVE}::test_appends_leave_the_reserve_alone_before_and_after_it_is_begun",),
    ),
    "full disk: an append goes where there is room, with no reserve behind it": Bug(
        "store/log/room.py", "        reserve.secure(fixed)\n", "        pass\n",
        (f"{RESERVE}::test_appends_leave_the_reserve_alone_before_and_after_it_is_begun",),
    ),
    "full disk: the reserve is not made again when space comes back": Bug(
        "store/log/upkeep.py", "            spares.reserve.fill(lane.footer_room.fixed_bytes)\n", "            pass\n",
        (f"{RESERVE}::test_reserve_is_made_again_by_itself_once_there_is_space",),
    ),
    "full disk: retention does not run while appends are refused": Bug(
        "store/log/upkeep.py", "self.removal.retire, self.early.seal,",
        "lambda: [self._keep_ahead(), self.removal.retire()], self.early.seal,",
        (f"{RESERVE}::test_retention_by_age_works_on_a_full_disk_and_appends_go_on_by_themselves",),
    ),
    "full disk: a footer takes space when its segment is sealed": Bug(
        "store/log/room.py", "if room >= min(footer + added, most_footer) + left:",
        "if room >= left:",
        (f"{RESERVE}::test_segments_of_many_streams_are_sealed_without_space",),
    ),
    "full disk: acknowledgements take the last of the reserve from trims": Bug(
        "store/log/reserve.py", "return self.nominal_bytes // (2 if is_copy else 4)", "return 0",
        (f"{RESERVE}::test_reserve_that_is_used_up_is_a_clear_error_and_trims_have_its_last_part",),
    ),
}  # fmt: skip
