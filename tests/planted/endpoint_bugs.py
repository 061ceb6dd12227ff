"""Bugs of an endpoint: bytes of requests, interrupts and forks, ends of connections, the command that serves."""

from __future__ import annotations

from .plant import Bug

BYTES = "tests/endpoint/remote/test_request_bytes.py"
INTERRUPTS = "tests/endpoint/rocketmq/test_interrupts.py"
FORKS = "tests/endpoint/rocketmq/test_forks.py"
ADMIN = "tests/endpoint/rocketmq/test_admin.py"
SERVE = "tests/console/test_serve.py"

ENDPOINT: dict[str, Bug] = {
    "endpoint: calls of a connection do not count in the bytes of all": Bug(
        "endpoint/remote/server/session.py",
        "        self._requests.add(frame.size_bytes)\n",
        "",
        (f"{BYTES}::test_tickets_take_room_from_all_calls_and_give_it_back",),
    ),
    "endpoint: the bytes of a connection's calls count for ever": Bug(
        "endpoint/remote/server/session.py",
        "        self._requests.remove(frame.size_bytes)\n",
        "",
        (f"{BYTES}::test_tickets_take_room_from_all_calls_and_give_it_back",),
    ),
    "endpoint: a call without room is taken": Bug(
        "endpoint/remote/server/session.py",
        "        if not self._fits(frame.size_bytes):",
        "        if False:",
        (f"{BYTES}::test_a_call_without_room_is_refused_alone_and_small_ones_go_on",),
        hangs=True,
    ),
    "endpoint: an acknowledgement is refused for its bytes": Bug(
        "endpoint/remote/server/session.py",
        "return size_bytes <= SMALL_BYTES or ",
        "return ",
        (f"{BYTES}::test_a_call_without_room_is_refused_alone_and_small_ones_go_on",),
    ),
    "endpoint: a part of a call stays though there is no room": Bug(
        "endpoint/remote/server/session.py",
        "        if not self._requests.has_room(self._coming_bytes):",
        "        if False:",
        (f"{BYTES}::test_calls_of_which_a_part_has_come_count_and_are_refused_without_room",),
        hangs=True,
    ),
    "endpoint: what a connection had of a call counts after its end": Bug(
        "endpoint/remote/server/session.py",
        "            self._count_coming(0)\n            for task",
        "            for task",
        (f"{BYTES}::test_a_connection_that_ends_in_the_middle_of_calls_leaves_no_bytes",),
    ),
    "endpoint: streams in a hurry are read on though others have much": Bug(
        "endpoint/server/request_bytes.py",
        "        if self.count - own_bytes <= self._calm:\n            return",
        "        return",
        (f"{BYTES}::test_streams_in_a_hurry_are_read_on_later_and_lose_nothing",),
    ),
    "endpoint: pieces of a call that was dropped begin another one": Bug(
        "endpoint/remote/frames.py",
        "        if number in self._dropped:\n            self._pass_by",
        "        if False:\n            self._pass_by",
        (f"{BYTES}::test_what_is_dropped_of_a_call_goes_nowhere_and_later_calls_come",),
    ),
    "endpoint: a close that is cut by the end of its connection is not made": Bug(
        "endpoint/remote/server/holdings.py",
        "                opening.add_done_callback(self._close_one)\n                raise",
        "                raise",
        ("tests/endpoint/remote/test_ends.py::test_a_close_that_the_end_of_its_connection_cuts_is_made_all_the_same",),
    ),
    "endpoint: what is dropped after its connection was lost makes another one": Bug(
        "endpoint/remote/client/link.py",
        "            if connection is not None:  # else it has ended",
        "            if connection := self.connection():  # else it has ended",
        ("tests/endpoint/remote/test_ends.py::test_what_is_dropped_after_its_connection_was_lost_makes_no_other_one",),
    ),
    "endpoint: an interrupt of a stop leaves the end to itself": Bug(
        "endpoint/server/loop_thread.py",
        "        except BaseException:  # an interrupt\n            self._wait()\n",
        "        except BaseException:  # an interrupt\n",
        (f"{INTERRUPTS}::test_an_interrupt_of_a_stop_is_raised_when_all_is_closed",),
    ),
    "endpoint: an interrupt before the thread is told leaves it running": Bug(
        "endpoint/rocketmq/endpoint.py",
        "                if not thread.is_closed:",
        "                if False:",
        (f"{INTERRUPTS}::test_an_interrupt_before_the_thread_is_told_of_the_end_is_raised_when_all_is_closed",),
    ),
    "endpoint: a forked child keeps the port": Bug(
        "endpoint/server/front.py",
        "        forks.watch(self)",
        "        pass",
        (f"{FORKS}::test_a_child_holds_neither_the_port_nor_the_connections_of_its_parent",),
        hangs=True,
    ),
    "endpoint: a forked child waits for its parent's loop": Bug(
        "endpoint/server/loop_thread.py",
        "        if self._closed or self._pid != os.getpid():",
        "        if self._closed:",
        (f"{FORKS}::test_a_child_can_neither_stop_nor_use_the_endpoint_of_its_parent",),
        hangs=True,
    ),
    "endpoint: a dashboard begins a transaction that nobody ends": Bug(
        "endpoint/rocketmq/admin/posting.py",
        "        if system.message_type == MessageType.TRANSACTION:",
        "        if False:",
        (f"{ADMIN}::test_a_dashboard_sends_a_message_by_the_rules_for_all",),
    ),
    "serve: an empty path is the current folder": Bug(
        "stratalog/console/changes.py",
        '    if not text:\n        raise typer.BadParameter("the path is empty',
        '    if False:\n        raise typer.BadParameter("the path is empty',
        (f"{SERVE}::test_an_empty_path_is_a_usage_error_and_not_the_current_folder",),
    ),
    "serve: a store is made before the port is looked at": Bug(
        "stratalog/console/serve.py",
        "        await server.start()\n        await server.stop(0)\n",
        "",
        (f"{SERVE}::test_a_port_in_use_is_said_before_a_store_is_made",),
    ),
}
