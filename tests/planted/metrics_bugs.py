"""Bugs of metrics, of the page for watchers, and of the web server beside a store."""

from __future__ import annotations

from .plant import Bug

METRICS_TEST = "tests/store/test_metrics.py"
PAGE = "tests/store/test_figures_page.py"
WEB = "tests/console/test_web.py"
TOP = "tests/console/test_top.py"

METRICS: dict[str, Bug] = {
    "metrics: quotes in a label are not escaped": Bug(
        "store/metrics/text.py", "{value.translate(_ESCAPES)}", "{value}",
        (f"{METRICS_TEST}::test_names_of_topics_are_escaped_and_come_back",),
    ),
    "metrics: buckets are not added up": Bug(
        "store/metrics/catalogue.py", "        total += count\n", "        total = count\n",
        (f"{METRICS_TEST}::test_writes_are_counted_by_powers_of_two_of_their_time",),
    ),
    "metrics: a backlog counts what was acknowledged out of order": Bug(
        "store/subscriptions/watched.py", "unacknowledged -= acked.above.range_cardinality(low, end)", "pass",
        (f"{METRICS_TEST}::test_a_backlog_counts_what_is_not_acknowledged_whatever_the_order_and_after_retention",),
    ),
    "metrics: a backlog counts messages that a trim removed": Bug(
        "store/subscriptions/watched.py", "low = first if acked is None else max(first, acked.mark)",
        "low = 0 if acked is None else acked.mark",
        (f"{METRICS_TEST}::test_a_backlog_counts_what_is_not_acknowledged_whatever_the_order_and_after_retention",),
    ),
    "metrics: all topics have values": Bug(
        "store/api/named_figures.py", "if len(self._named) < MOST_NAMED:", "if True:",
        (f"{METRICS_TEST}::test_the_first_hundred_names_have_values_and_the_others_are_counted",),
    ),
    "metrics: a topic of any number of queues is counted": Bug(
        "store/api/named_figures.py", "                if len(queues) > left:\n                    continue\n", "",
        (f"{METRICS_TEST}::test_a_topic_of_too_many_queues_is_left_out_and_the_others_stay",),
    ),
    "metrics: all subscriptions are loaded at once": Bug(
        "store/subscriptions/watched.py", "                loads -= 1\n", "",
        (f"{METRICS_TEST}::test_subscriptions_that_nobody_has_used_since_the_opening_are_loaded_some_a_look",),
    ),
    "telemetry: an instrument keeps the store": Bug(
        "stratalog/telemetry.py", "self._store = weakref.ref(store)", "self._store = lambda: store",
        ("tests/test_telemetry.py::test_a_closed_or_dropped_store_has_no_values_and_is_not_kept",),
    ),
    "page: figures are told while nobody watches": Bug(
        "store/live/figures_teller.py", " or not self._is_watched():", ":",
        (f"{PAGE}::test_nobody_watches_and_nothing_is_written_or_asked_for",),
    ),
    "page: a torn body is believed": Bug(
        "store/format/figures_page.py", " or SUM.pack(checksum64(body)) != page[_SUM_AT:_BODY_AT]", "",
        (f"{PAGE}::test_a_page_comes_back_and_any_torn_or_foreign_one_says_nothing",),
    ),
    "page: the page of the writer before is taken for this one's": Bug(
        "store/live/figures_watch.py", "        self._serial = _serial_of(_page_in(folder))\n",
        "        self._serial = _serial_of(None)\n",
        (f"{PAGE}::test_a_page_that_a_killed_writer_left_is_not_taken_for_the_next_one",),
    ),
    "page: the file stays after a close": Bug(
        "store/live/figures_teller.py", "                self._disk.remove(self._path)\n", "                pass\n",
        (f"{PAGE}::test_while_somebody_watches_the_store_tells_once_a_second_and_then_no_more",),
    ),
    "page: a page that was removed is written on": Bug(
        "store/live/figures_teller.py", " or not self._page.is_in_place():", ":",
        (f"{PAGE}::test_a_page_that_was_removed_is_made_again",),
    ),
    "page: a full disk is an error of the background": Bug(
        "store/live/figures_teller.py", "        with suppress(OSError):  # no room: see the invariants\n",
        "        if True:\n",
        (f"{PAGE}::test_without_room_for_the_page_the_store_goes_on_and_tells_later",),
    ),
    "web: a silent client is waited for": Bug(
        "stratalog/console/web.py", "            async with asyncio.timeout(PATIENCE_S):\n                head =",
        "            async with asyncio.timeout(None):\n                head =",
        (f"{WEB}::test_clients_that_are_silent_or_take_nothing_stop_nobody",), hangs=True,
    ),
    "web: a page is made in the loop": Bug(
        "stratalog/console/web.py", "await asyncio.to_thread(make)", "make()",
        (f"{WEB}::test_a_slow_page_holds_up_no_loop_and_is_made_once_at_a_time",), hangs=True,
    ),
    "web: a page of another host is answered": Bug(
        "stratalog/console/web.py", "if self._local_names and ", "if False and ",
        (f"{WEB}::test_with_local_names_a_request_for_another_host_is_refused",),
    ),
    "top: names steer the terminal": Bug(
        "stratalog/console/top_screen.py", "_cell(plain(row[0]))", "_cell(row[0])",
        (f"{TOP}::test_a_screen_has_what_is_wrong_and_escapes_what_steers_the_terminal",),
    ),
    "top: two openings count as one": Bug(
        "stratalog/console/frames.py", 'before["pid"] == now["pid"] and ', "",
        (f"{TOP}::test_rates_are_what_has_grown_between_two_figures",),
    ),
}  # fmt: skip
