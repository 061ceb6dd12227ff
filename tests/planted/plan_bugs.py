"""Bugs in the plans of bulk reads and in their limits."""

from __future__ import annotations

from .plant import Bug

PLANS = ("tests/store/test_plans.py",)
LIMITS = ("tests/store/test_plan_limits.py",)
STREAM = "tests/pipeline/test_stream.py"

PLANNING: dict[str, Bug] = {
    "plans: a payload is believed without its checksum": Bug(
        "store/plans/reading.py", "        if not len(wrong):\n", "        if True:\n",
        (f"{PLANS[0]}::test_damaged_payload_is_an_error_with_file_and_position",),
    ),
    "plans: an offset that does not agree with its frame is believed": Bug(
        "store/plans/reading.py", "if self._on_damage is None and len(ahead) and int(ahead.max()) >= header.count:",
        "if False:", (f"{PLANS[0]}::test_message_without_its_right_offset_is_an_error",),
    ),
    "plans: what lies before a position is read again": Bug(
        "store/plans/reading.py", "            wanted[:low] = False\n", "            pass\n",
        (f"{PLANS[0]}::test_positions_may_cut_a_frame",),
    ),
    "plans: what is trimmed is read": Bug(
        "store/read/wanted.py",
        "        lows[numbers_there] = np.maximum(lows[numbers_there], trimmed.offsets[known])\n", "        pass\n",
        PLANS,
    ),
    "plans: a stream's first offset in a part is that of its segment": Bug(
        "store/plans/planning.py",
        "offsets = firsts[there] + np.bincount(numbers[:begin], minlength=len(firsts))[there]",
        "offsets = firsts[there]", PLANS,
    ),
    "plans: retention that overtook a read is not noticed": Bug(
        "store/plans/planning.py", "        if start.segment >= header.sequence:\n", "        if True:\n",
        (f"{PLANS[0]}::test_read_that_retention_overtakes_is_an_error_unless_it_is_told_to_go_on",),
    ),
    "plans: a micro-batch that is run again passes over a store that is gone": Bug(
        "pipeline/stream.py", "        self._check_stores(stop)", "        pass",
        (f"{STREAM}::test_micro_batch_that_is_run_again_fails_if_a_store_of_it_is_gone",),
    ),
    "plans: a stream forgets where it was in a store that is gone": Bug(
        "pipeline/stream.py", "for store, lanes in begin.items() if store not in planners}",
        "for store, lanes in begin.items() if not planners}",
        (f"{STREAM}::test_store_that_was_away_goes_on_where_it_was",),
    ),
    "plans: a limit of rows takes one more": Bug(
        "store/plans/limits.py", "            end = int(entry_numbers[left.rows])\n",
        "            end = int(entry_numbers[left.rows]) + 1\n", LIMITS,
    ),
    "plans: a lane takes more than the others leave": Bug(
        "store/plans/limits.py",
        "        rows_left, bytes_left = rows_left - took.rows, bytes_left - took.size_bytes\n", "", LIMITS,
    ),
}  # fmt: skip
