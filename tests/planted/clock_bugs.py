"""Bugs of a clock that is moved, and of those who sleep by it."""

from __future__ import annotations

from .plant import Bug

CLOCK = "tests/store/test_virtual_clock.py"
CONSUMERS = "tests/store/subscriptions/test_moved_clock.py"

CLOCKS: dict[str, Bug] = {
    "moved clock: the thread of timers is not told": Bug(
        "index/timer_thread.py", "            clock.watch(self)", "            pass",
        (f"{CLOCK}::test_a_thread_of_timers_goes_by_the_clock",), hangs=True,
    ),
    "moved clock: a read that has not begun to sleep sleeps for the whole time again": Bug(
        "index/purgatory.py", "deadline_ms = min(deadline_ms, operation.until_ms)", "pass",
        (f"{CLOCK}::test_a_read_that_is_about_to_sleep_when_the_clock_moves_does_not_wait_for_another_day[coroutine]",),
        hangs=True,
    ),
    "moved clock: a receive that does not wait sleeps to the end of the ms": Bug(
        "store/read/waiting.py", "* 1000) + wait_ms if wait_ms else 0", "* 1000) + wait_ms",
        (f"{CONSUMERS}::test_a_receive_that_does_not_wait_sleeps_for_no_part_of_a_ms",), hangs=True,
    ),
    "moved clock: some fractions of a second are not exact": Bug(
        "store/testing/clock.py", "FIRST_MS = 1 << 43", "FIRST_MS = 0",
        (f"{CLOCK}::test_the_monotonic_time_is_a_whole_number_of_ms_after_any_moves",),
    ),
    "moved clock: it moves by nothing where it should refuse": Bug(
        "store/testing/clock.py", "        if _whole(ms, \"ms\") < 0:", "        if False:",
        (f"{CLOCK}::test_times_out_of_range_are_refused_and_nothing_has_moved",),
    ),
    "moved clock: a jump of the time of day lets time pass": Bug(
        "store/testing/clock.py", "return self._move(_whole(ms, \"ms\"), 0)",
        "return self._move(_whole(ms, \"ms\"), ms)",
        (f"{CLOCK}::test_time_passes_only_when_the_clock_is_moved",),
    ),
    "moved clock: one that raises keeps the others asleep": Bug(
        "store/testing/clock.py", "                except Exception as error:  # the others",
        "                except OSError as error:  # the others",
        (f"{CLOCK}::test_one_that_cannot_be_woken_keeps_the_others_from_nothing",),
    ),
    "moved clock: it keeps stores that were closed": Bug(
        "store/device/sleepers.py", "            self._clock.forget(self)\n", "",
        (f"{CLOCK}::test_a_clock_keeps_nothing_of_stores_that_were_closed_or_dropped",),
    ),
    "moved clock: producers at the cap are not woken": Bug(
        "store/api/lanes.py", "        shared.sleepers.add(queue.wake)\n", "",
        (f"{CLOCK}::test_a_producer_at_the_cap_gives_up_by_the_clock",), hangs=True,
    ),
    "moved clock: coroutines at the cap give up by the time of the machine": Bug(
        "store/device/sleepers.py", "        if self._clock is None:\n            return loop",
        "        if True:\n            return loop",
        (f"{CLOCK}::test_a_coroutine_at_the_cap_does_not_give_up_by_the_time_of_the_machine",),
    ),
    "moved clock: coroutines at the cap give up too early": Bug(
        "store/device/sleepers.py", "self._deadline_ms = clock.monotonic_s() * 1000 + delay_ms",
        "self._deadline_ms = clock.monotonic_s() * 1000 + delay_ms - 1",
        (f"{CLOCK}::test_a_coroutine_at_the_cap_gives_up_by_the_clock",),
    ),
    "moved clock: upkeep is not woken": Bug(
        "store/api/store.py", "        self._shared.sleepers.add(self._upkeep.wake, self._upkeep.call_lookers)\n", "",
        (f"{CLOCK}::test_a_move_wakes_upkeep_at_once",), hangs=True,
    ),
    "moved clock: the thread of the delayed messages is not woken": Bug(
        "store/api/delayed_calls.py", "    shared.sleepers.add(delays.worker.ring)\n", "",
        (f"{CONSUMERS}::test_a_jump_of_the_time_of_day_alone_delivers_what_is_due_then",), hangs=True,
    ),
    "moved clock: a consumer with a precision sleeps through a jump of the time of day": Bug(
        "store/subscriptions/delays.py", "now_ms < self._wakes_ms <= self._turn_after(",
        "0 < self._wakes_ms <= self._turn_after(",
        (f"{CONSUMERS}::test_a_jump_of_the_time_of_day_alone_delivers_what_is_due_then",), hangs=True,
    ),
    "moved clock: an acknowledgement at the cap gives up later than its time": Bug(
        "store/subscriptions/group_commit.py", "self._at(ceil(until_ms), self", "self._at(ceil(until_ms) + 2, self",
        (f"{CONSUMERS}::test_an_acknowledgement_at_the_cap_gives_up_by_the_clock[coroutine]",), hangs=True,
    ),
    "moved clock: a reader looks for a new writer by its store's clock": Bug(
        "store/live/follower.py", "        now = time.monotonic()\n        due =", "        now = 0.0\n        due =",
        (f"{CLOCK}::test_a_reader_follows_a_writer_that_was_opened_again_while_its_clock_stands_still",), hangs=True,
    ),
}  # fmt: skip
