"""Bugs in the reports of measurements: what they leave out, compare wrongly, or measure wrongly."""

from __future__ import annotations

from .plant import Bug

COMPARING = "tests/perf/report/test_comparing.py"
PAGE = "tests/perf/report/test_page.py"
REPORTED = "tests/perf/experiments/test_reported.py"

REPORTS: dict[str, Bug] = {
    "paced calls: more are under way than are allowed": Bug(
        "perf/workload/paced.py",
        "        async with room:\n            await call(number)\n",
        "        await call(number)\n",
        ("tests/perf/workload/test_paced.py::test_calls_under_way_are_bounded_and_the_wait_of_the_others_counts",),
    ),
    "ladders: one that falls behind is not given up": Bug(
        "perf/experiments/ladder.py",
        '[rate]["per_s"] >= ladder.given_up * rate',
        '[rate]["per_s"] >= 0.0',
        ("tests/perf/experiments/test_ladder.py",),
    ),
    "endpoint's sends: a message that is there twice counts as another one": Bug(
        "perf/workload/rocketmq.py",
        "    if sorted(there) != sorted(body_of(number, size_bytes) for number in range(messages)):\n",
        "    if len(there) != messages:\n",
        ("tests/perf/experiments/test_endpoint.py::test_sends_that_are_not_there_or_are_other_ones_are_a_wrong_result",),
    ),
    "reports: a latency counts from when the driver came to its request": Bug(
        "perf/workload/paced.py",
        "        found = store.get_range(TOPIC, 0, place, 1)\n"
        "        times.append(perf_counter_ns() - began - rate.due_ns(number))\n",
        "        called = perf_counter_ns()\n        found = store.get_range(TOPIC, 0, place, 1)\n"
        "        times.append(perf_counter_ns() - called)\n",
        ("tests/perf/workload/test_paced.py::test_requests_that_are_due_in_a_stall_wait_for_its_end",),
    ),
    "reports: a slower machine is told as slower code": Bug(
        "perf/report/comparing.py",
        "    if before.share and after.share and not (before.reference_is_store or after.reference_is_store):\n",
        "    if False:\n",
        (f"{COMPARING}::test_slower_machine_is_told_apart_from_slower_code",),
    ),
    "reports: a range that is small by chance counts as a small spread": Bug(
        "perf/report/comparing.py", "MEDIAN_ERROR * max(usual, own or 0.0)", "0.01 * MEDIAN_ERROR * (own or 0.0)",
        (f"{COMPARING}::test_change_within_the_spread_is_the_same",),
    ),
    "reports: a longer time is told as better": Bug(
        "perf/report/comparing.py", '(moved > 0) == (after.better == "higher")', "moved > 0",
        (f"{COMPARING}::test_longer_time_is_worse_where_lower_is_better",),
    ),
    "reports: a name can end the script of the page": Bug(
        "perf/report/page.py", '.replace("<", "\\\\u003c")', "",
        (f"{PAGE}::test_names_end_no_script_and_are_no_tags",),
    ),
    "reports: a run makes the folder that was mistyped": Bug(
        "perf/machine/folders.py", "    if not folder.is_dir():\n",
        "    folder.mkdir(parents=True, exist_ok=True)\n    if not folder.is_dir():\n",
        ("tests/perf/machine/test_folders.py::test_folder_that_does_not_exist_is_refused_and_not_made",),
    ),
    "reports: a report that cannot be written whole takes the place of the old one": Bug(
        "perf/report/files.py", '    new = path.with_name(f".{path.name}.new")\n', "    new = path\n",
        ("tests/perf/report/test_record.py::test_files_stay_as_they_were_if_the_new_ones_cannot_be_written",),
    ),
    "reports: a command whose messages were lost ends with exit code 0": Bug(
        "perf/commands/app.py", "    if not report.right:\n", "    if not report.verdict:\n",
        (f"{REPORTED}::test_wrong_result_is_said_first_and_last_and_ends_with_exit_code_1",),
    ),
    "reports: a lost message is not said in the page": Bug(
        "perf/experiments/reported.py", 'summary=summary if study.right else (f"WRONG: {verdict}", *summary)',
        "summary=summary",
        (f"{REPORTED}::test_wrong_result_is_said_first_and_last_and_ends_with_exit_code_1",),
    ),
    "reports: of two parts with one name the last one counts for both": Bug(
        "perf/experiments/parts.py", "if names.count(name) > 1}", "if names.count(name) > 2}",
        (f"{REPORTED}::test_two_parts_of_one_name_are_refused_before_anything_runs",),
    ),
    "reports: the part of reads that memory served is that of the device": Bug(
        "perf/report/layers.py", '"device": max(0, reads["messages"] - memory),', '"device": memory,',
        ("tests/perf/report/test_layers.py::test_what_the_ring_and_a_tier_served_is_told_apart",),
    ),
    "reports: a setting is advised that helps in some rounds alone": Bug(
        "perf/experiments/host_advice.py", "    shares = {lanes: found.worst_share(",
        "    shares = {lanes: found.share(",
        ("tests/perf/experiments/test_host.py::test_setting_that_helps_in_some_rounds_alone_is_not_advised",),
    ),
}  # fmt: skip
