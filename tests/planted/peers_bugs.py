"""Bugs in the measurements beside peers: a promise that is not kept, or not compared."""

from __future__ import annotations

from .plant import Bug

GROUPED = "tests/perf/peers/test_grouped.py"
ADAPTERS = "tests/perf/peers/test_peers.py"
REPORT = "tests/perf/experiments/test_peers.py"

PEERS: dict[str, Bug] = {
    "peers: the group-commit thread answers before it has written": Bug(
        "perf/peers/grouped.py",
        "            try:\n                self._write(rows)\n",
        "            for answer in answers:\n                answer.release()\n            answers = []\n"
        "            try:\n                self._write(rows)\n",
        (f"{GROUPED}::test_callers_return_only_when_their_row_is_written_and_share_a_write",),
    ),
    "peers: the group-commit thread goes on after a failed write": Bug(
        "perf/peers/grouped.py", "            if self._error is not None:\n                return\n", "",
        (f"{GROUPED}::test_row_that_waits_beside_a_write_that_fails_is_not_written",),
    ),
    "peers: a message in another one's place is taken for it": Bug(
        "perf/peers/messages.py", "                number = seen.get(queue, 0)\n                if not self.matches(",
        "                number = seen.get(queue, 0)\n                if False and not self.matches(",
        (f"{ADAPTERS}::test_check_finds_what_is_not_as_it_was_written",),
    ),
    "peers: what was acknowledged before a kill may be lost": Bug(
        "perf/peers/messages.py", "not (at_least and found > expected)", "not at_least",
        (f"{ADAPTERS}::test_check_finds_what_is_not_as_it_was_written",),
    ),
    "peers: a job that comes twice counts": Bug(
        "perf/experiments/peers_jobs.py", "if (worker, number) in seen or not", "if not",
        (f"{REPORT}::test_jobs_that_do_not_come_once_each_are_a_wrong_result",),
    ),
    "peers: a peer that promises less is the one to beat": Bug(
        "perf/experiments/peers_told.py", "other.needs not in one.kind.WEAKER", "True",
        (f"{REPORT}::test_peer_that_promises_less_is_no_measure_for_the_others",),
    ),
    "peers: the summary calls a shorter time worse": Bug(
        "perf/experiments/peers_told.py", 'measure.value if measure.better == "higher" else -measure.value',
        "measure.value",
        (f"{REPORT}::test_summary_compares_with_the_best_peer_also_with_a_group_commit_thread",),
    ),
    "peers: the raw device's clock counts the bytes too": Bug(
        "perf/experiments/peers_reads.py", "        wanted = filled.payload_bytes\n        began = perf_counter()\n",
        "        began = perf_counter()\n        wanted = filled.payload_bytes\n",
        (f"{REPORT}::test_clock_of_the_raw_device_starts_after_the_bytes_are_counted",),
    ),
    "peers: threads connect after the clock has started": Bug(
        "perf/experiments/peers_work.py", "            peer.ready()\n", "            pass\n",
        (f"{REPORT}::test_jobs_start_when_every_thread_is_ready_and_end_so_many_seconds_after_that",),
    ),
    "peers: an error of the store leaves the run its exit code": Bug(
        "perf/experiments/parts.py", "if failed is None or part.must:", "if failed is None:",
        (f"{REPORT}::test_error_of_the_store_ends_the_run",),
    ),
    "peers: the store is prepared before the clock": Bug(
        "perf/peers/store.py", "MessageStore.open(folder)",
        "MessageStore.open(folder, config=__import__('stratalog.testing').testing.TunedConfig("
        "prewrite_bytes=prepare_bytes))",
        (f"{ADAPTERS}::test_nothing_is_prepared_for_the_store",),
    ),
    "peers: Lmdb gives the next queue's messages": Bug(
        "perf/peers/lmdb.py", "            if key[:QUEUE_BYTES] != prefix:\n                break\n", "",
        (f"{ADAPTERS}::test_ranges_are_of_one_queue_and_no_more",),
    ),
}  # fmt: skip
