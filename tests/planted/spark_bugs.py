"""Bugs at Spark's border, in plans that wait, in compaction of many segments, and in the end of a store."""

from __future__ import annotations

from .plant import Bug

STREAM = "tests/pipeline/test_stream.py"
SINKS = "tests/pipeline/test_sink_stores.py"
LIMITS = "tests/store/test_plan_limits.py"
ENDS = "tests/store/test_closing.py::test_a_part_that_raises_at_the_end_hinders_no_other_and_leaves_no_lock"

SPARK: dict[str, Bug] = {
    "spark: a stream finds news in what it does not want": Bug(
        "store/plans/limits.py", "if lane in start and walk.rests()}", "if False}",
        (f"{LIMITS}::test_a_read_rests_until_something_wanted_comes",
         f"{STREAM}::test_acknowledgements_start_no_micro_batch"),
    ),
    "spark: a stream rests though something wanted came": Bug(
        "store/plans/limits.py", "return there and len(self._wanted_entries(source, entries)[0]) > 0",
        "return there and len(self._wanted_entries(source, entries)[0]) > 1", (LIMITS,),
    ),
    "spark: a stream that waits is overtaken by retention": Bug(
        "store/plans/limits.py", "        if self.start.segment != self._end.segment:\n            return False\n",
        "        if self.start.segment != self._end.segment:\n            return True\n",
        (f"{LIMITS}::test_a_read_that_only_waits_moves_on_with_the_segments",),
    ),
    "spark: a micro-batch without rows is committed": Bug(
        "pipeline/sink.py", "leaves = keep and (batch is None or any(one.rows for one in written))", "leaves = keep",
        (f"{SINKS}::test_micro_batch_without_rows_leaves_nothing",),
    ),
    "spark: a micro-batch without rows is not compared with the one that it replays": Bug(
        "pipeline/sink.py", "        if shards or keep:\n", "        if shards or leaves:\n",
        (f"{SINKS}::test_micro_batch_that_had_rows_or_none_is_refused_if_it_comes_again_otherwise",),
    ),
    "spark: a micro-batch without rows is refused behind later ones": Bug(
        "store/shards/attacher.py", "and not (leaves_nothing and newer <= HISTORY):", "and True:",
        (f"{SINKS}::test_micro_batch_that_had_rows_or_none_is_refused_if_it_comes_again_otherwise",),
    ),
    "spark: a micro-batch without rows is taken where nobody knows what it had": Bug(
        "store/shards/attacher.py", "and not (leaves_nothing and newer <= HISTORY):", "and not leaves_nothing:",
        (f"{SINKS}::test_micro_batch_without_rows_is_refused_where_nobody_can_tell_what_it_had",),
    ),
    "spark: rows of a stream without a name are dropped": Bug(
        "pipeline/sink.py", "            if any(one.rows for one in written):\n", "            if False:\n",
        (f"{SINKS}::test_rows_of_a_stream_without_a_name_are_an_error_and_not_dropped",),
    ),
    "spark: a far delivery time wraps around": Bug(
        "pipeline/arrow.py", "    times = np.minimum(times_ms, MOST_MS)\n", "    times = times_ms.copy()\n",
        ("tests/pipeline/test_arrow.py::test_times_that_rows_have_not_become_the_last_one_that_they_have",),
    ),
    "compact: the footers of all segments stay mapped": Bug(
        "store/compact/plan.py", "            messages += int(",
        "            _footer_figures.__dict__.setdefault('kept', []).append(footer)\n            messages += int(",
        ("tests/store/compact/test_compacting.py::test_one_footer_is_mapped_at_a_time",),
    ),
    "close: a part that raises keeps the others open and the folder locked": Bug(
        "store/device/steps.py", "            first = first or error\n", "            raise\n", (ENDS,),
    ),
    "close: a delayed index is saved again after it was closed": Bug(
        "store/delayed/delays.py", "            if save and not topic.is_closed:\n", "            if save:\n",
        ("tests/store/test_closing.py::test_ending_appends_and_closing_save_a_delayed_index_once",),
    ),
    "plans: a part reads the frames that had its numbers when it was planned": Bug(
        "store/plans/reading.py", "        first, end = frames_of(entries, one.entries)\n",
        "        first, end = frames_of(entries, one.entries)\n"
        "        first += bool((footer.entries == LOST_ENTRY).any())\n",
        ("tests/store/test_plans.py::test_parts_that_were_planned_before_a_repair_give_what_it_has_left",),
    ),
}  # fmt: skip
