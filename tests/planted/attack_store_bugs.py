"""Bugs where two parts of the store meet: commits, forces that were put off, interrupts, full disks, sealing."""

from __future__ import annotations

from .plant import Bug

FAILED = "tests/store/shards/test_failed_commits.py"
FORCES = "tests/store/test_forces.py"
STOPPING = "tests/store/shards/test_stopping.py"

MEETINGS: dict[str, Bug] = {
    "meetings: what a failed commit has left in memory counts as attached": Bug(
        "store/shards/lane_attach.py", "        if self._lane.poison is not None:\n            raise copy_of(",
        "        if False:\n            raise copy_of(",
        (f"{FAILED}::test_a_commit_whose_write_has_failed_keeps_its_manifest_until_the_next_opening",),
    ),
    "meetings: a force that was put off and failed is made again by another flusher": Bug(
        "store/log/writes.py", "            self._poison(error)  # here", "            # here",
        (f"{FORCES}::test_a_force_that_was_put_off_and_fails_is_not_tried_again_by_another_flusher",),
    ),
    "meetings: an interrupt between two segments leaves the lane to the next append": Bug(
        "store/log/at_once.py",
        "        except BaseException as error:\n            self._flusher.fail(error)\n            raise\n",
        "        finally:\n            pass\n",
        (f"{FAILED}::test_an_interrupt_while_a_commit_makes_room_leaves_the_lane_whole_or_poisoned",),
    ),
    "meetings: a commit that has begun is refused for a larger reserve": Bug(
        "store/log/room.py", " and not lane.under_way.is_holding:", ":",
        (f"{FAILED}::test_a_commit_that_has_begun_with_its_frames_asks_for_no_larger_reserve",),
    ),
    "meetings: a large commit stands still for a lane whose sealing fails, again and again": Bug(
        "store/log/stopping.py", "        sealer.make_way(lane, most=1)\n", "",
        (f"{STOPPING}::test_a_lane_whose_sealing_fails_stands_still_once_and_not_again",),
    ),
}  # fmt: skip
