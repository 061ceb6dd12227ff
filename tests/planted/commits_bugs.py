"""Bugs of bulk commits over several lanes, and of those that something hinders."""

from __future__ import annotations

from .plant import Bug

TOGETHER = "tests/store/shards/test_together.py"
GIVING_UP = "tests/store/shards/test_giving_up.py"
SWEEPING = "tests/store/shards/test_sweeping.py"
UPKEEP = "tests/store/test_upkeep.py"
ERRORS = "tests/store/test_system_errors.py"
CALLS = "tests/store/shards/test_calls.py"
COSTS = "tests/store/shards/test_costs.py"
PACE = "tests/store/test_pace.py"

COMMITS: dict[str, Bug] = {
    "commits: the first lane is written before the shards of the last one are looked at": Bug(
        "store/log/attach_together.py",
        "        for part in parts:\n            part.make()\n        try:\n            for part in parts:\n"
        "                part.build()\n            write_all([part.write for part in parts])\n",
        "        try:\n            for part in parts:\n                part.make()\n                part.build()\n"
        "                part.write()\n",
        (f"{TOGETHER}::test_a_commit_that_cannot_be_made_in_one_lane_changes_no_other",),
    ),
    "commits: a commit that some lanes have is not begun": Bug(
        "store/shards/attacher.py",
        "        return any(lane.remembers(manifest) for lane in lanes) and ", "        return False and ",
        (f"{TOGETHER}::test_a_commit_of_which_a_repair_has_given_up_a_lane_is_never_taken_for_whole",),
    ),
    "commits: a commit that a repair gave up in part is taken for whole": Bug(
        "store/shards/attacher.py", "            self._take([part for part in parts if part is not None])\n", "",
        (f"{TOGETHER}::test_a_commit_of_which_a_repair_has_given_up_a_lane_is_never_taken_for_whole",),
    ),
    "commits: lanes that do not agree are not looked at": Bug(
        "store/format/applied.py", "digest if found.get(number, digest) == digest else IN_PART", "digest",
        ("tests/store/shards/test_formats.py",),
    ),
    "commits: lanes are shown one after the other": Bug(
        "store/log/together.py", "    deque(map(setattr, *zip(*changes, strict=True)), maxlen=0)\n",
        "    for change in changes:\n        setattr(*change)\n", (TOGETHER,),
    ),
    "commits: a flusher shows frames that are held": Bug(
        "store/log/writes.py", "        durable = min(self.durable, self._held_from)\n",
        "        durable = self.durable\n", (f"{TOGETHER}::test_all_lanes_show_a_commit_at_one_step",),
    ),
    "commits: lanes tell other processes one after the other": Bug(
        "store/log/attach_together.py", "            with telling():\n", "            if telling:\n",
        (f"{TOGETHER}::test_all_lanes_show_a_commit_at_one_step",),
    ),
    "commits: readers go by what changes while the turn is odd": Bug(
        "store/live/page.py", "            if turn & 1:\n", "            if False:\n",
        (f"{TOGETHER}::test_all_lanes_show_a_commit_at_one_step",),
    ),
    "commits: a reader takes the state of one lane before a commit, and of the next one after it": Bug(
        "store/live/page.py", "            if self._mapped.word(TURN_AT) == turn:\n", "            if True:\n",
        (f"{TOGETHER}::test_a_scan_that_begins_before_a_commit_has_none_of_it_or_all",),
    ),
    "commits: a scan takes one lane before a commit, and the next one after it": Bug(
        "store/api/shared.py", "            if self.shown == shown:\n", "            if True:\n",
        (f"{TOGETHER}::test_a_scan_that_begins_before_a_commit_has_none_of_it_or_all",),
    ),
    "commits: a reader's scan takes lanes while one of them is brought up": Bug(
        "store/live/follower.py", "        with self._lock:\n            return call()\n", "        return call()\n",
        (f"{TOGETHER}::test_a_look_waits_for_a_scan_of_another_process_that_begins",),
    ),
    "commits: an opening tells other processes before it has finished what a crash has left in part": Bug(
        "store/api/store.py", "        self._upkeep.start(self._lanes)\n",
        "        publisher.begin(self._lanes)\n        self._upkeep.start(self._lanes)\n",
        (f"{TOGETHER}::test_a_commit_that_a_kill_has_left_in_some_lanes_is_finished_before_anybody_sees_it",),
    ),
    "commits: a repair attaches payloads that it has not read": Bug(
        "store/shards/attacher.py", "lane.checks_payloads = True", "lane.checks_payloads = False",
        (f"{GIVING_UP}::test_a_repair_attaches_no_damaged_payload",),
    ),
    "commits: a manifest does not name the one before it": Bug(
        "store/shards/staging.py", "    if pending:\n", "    if False:\n",
        (f"{GIVING_UP}::test_a_lost_manifest_is_told_by_the_next_one",),
    ),
    "commits: nothing is swept behind an error": Bug(
        "store/shards/attacher.py", "                self._sweep_if_due(names)\n            raise\n",
        "                pass\n            raise\n",
        (f"{SWEEPING}::test_leftovers_are_swept_while_a_commit_waits",),
    ),
    "commits: nothing is swept while commits come": Bug(
        "store/shards/attacher.py", "            raise\n        self._sweep_if_due(names)\n",
        "            raise\n        if not any(name.endswith(MANIFEST_SUFFIX) for name in names):\n"
        "            self._sweep_if_due(names)\n",
        (f"{SWEEPING}::test_leftovers_are_swept_by_a_clock_of_their_own",),
    ),
    "commits: each error of the system is a full disk": Bug(
        "store/errors.py", "    if error.errno in NO_SPACE:\n", "    if True:\n", (ERRORS,),
    ),
    "commits: an error behind the manifest's rename says that nothing was committed": Bug(
        "store/shards/staging.py", "    with system_errors(folder / name, MAY_BE_DURABLE):\n",
        "    if MAY_BE_DURABLE:\n", (ERRORS,),
    ),
    "commits: the shown lanes of a commit are told one by one": Bug(
        "store/log/attach_together.py",
        "        set_together([*(change for part in parts for change in part.changes), shown()])\n",
        "        for part in parts:\n            set_together(part.changes)\n        set_together([shown()])\n",
        (TOGETHER,),
    ),
    "commits: columns that were written for a guess are taken for right": Bug(
        "store/shards/rewriting.py", "[head if columns != before else head[:FRAME_HEADER_BYTES]]",
        "[head[:FRAME_HEADER_BYTES]]",
        (f"{COSTS}::test_columns_written_for_a_guess_that_was_wrong_are_written_anew",),
    ),
    "commits: the names that came last are forgotten first": Bug(
        "store/format/commit_names.py", "(oldest := next(iter(table))) != key", "(oldest := next(reversed(table)))",
        (f"{COSTS}::test_the_names_that_came_longest_ago_are_forgotten_where_all_take_too_much",),
    ),
    "commits: a committer wakes nobody": Bug(
        "store/live/calls.py", "        page.wake()\n        page.close()\n", "        page.close()\n", (CALLS,),
    ),
    "retention: appends wait for a removal that waits for them": Bug(
        "store/log/removal.py", "self.pace.is_forcing = True", "self.pace.is_forcing = False",
        ("tests/store/test_pace.py::test_no_append_waits_for_retention_that_has_the_lanes_forced",),
    ),
    "retention: appends wait for a removal that cannot go on": Bug(
        "store/log/removal.py", "is_stuck=not self._retire()", "is_stuck=self._retire() is None",
        (f"{PACE}::test_no_append_waits_for_retention_that_cannot_go_on",), hangs=True,
    ),
    "retention: appends do not wait": Bug(
        "store/log/upkeep.py", "        self.removal.pace.hold_back(lane, self._wake.set)\n", "",
        (f"{PACE}::test_an_append_waits_for_retention_that_is_behind_and_goes_on_behind_its_step",),
    ),
    "retention: records wait for it": Bug(
        "store/log/pace.py", "queue.refusal is None and not any(", "queue.refusal is None or any(",
        (f"{PACE}::test_records_never_wait_for_retention_and_take_the_appends_before_them_along",), hangs=True,
    ),
    "commits: a commit waits for a spare that is being made": Bug(
        "store/log/upkeep.py", "            self._wake_lookers.clear()\n",
        "            self._wake_lookers.clear()\n            with self.spares_of(0).making:\n                pass\n",
        (f"{UPKEEP}::test_neither_commits_nor_spares_wait_for_the_other",),
    ),
    "commits: a spare waits for a commit that is being attached": Bug(
        "store/log/upkeep.py", "            if self._try(self._is_in_place):\n                self._try(self._warm)\n",
        "            if self._try(self._is_in_place):\n                for look in list(self.lookers):\n"
        "                    self._try(look)\n                self._try(self._warm)\n",
        (f"{UPKEEP}::test_neither_commits_nor_spares_wait_for_the_other",),
    ),
}  # fmt: skip
