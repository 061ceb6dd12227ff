"""Opening in odd moments and on odd systems: interrupted, dropped, at the end of the interpreter, without a flag."""

from __future__ import annotations

import errno
import gc
import os
import random
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreFull, StoreUnusable, verify_folder
from stratalog.store.device.background import Background, Bell
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.folder import FolderLock
from stratalog.store.device.os_file import OsFile
from stratalog.store.device.ring import Ring
from stratalog.store.format.layout import RETIRED_PREFIX
from stratalog.store.testing import Kind, SimulatedDisk

from .disks import GatedDisk, MortalDisk, WatchedDisk
from .helpers import KIB, handed_over, run_child, segment_paths, small, start, tiny, until
from .interrupts import Interrupted, interrupt_at, places

PREWRITING = tiny(prewrite_bytes=512 * KIB, lanes=2)


MADE: tuple[Kind, ...] = ("create", "rename", "remove", "force_folder", "write", "reserve", "force")


def test_interrupt_at_any_step_of_the_prewriting_leaves_a_store_that_opens(tmp_path: Path) -> None:
    for calls in range(1000):
        path = tmp_path / str(calls)
        MessageStore.open(path, tiny(lanes=2)).close()
        disk = MortalDisk(calls, MADE, Interrupted)
        try:
            store = MessageStore.open(path, PREWRITING, disk=disk)
        except Interrupted:
            pass
        else:
            disk.left = 1 << 30
            store.close()
            assert calls > 20
            return
        with MessageStore.open(path, tiny()) as store:
            assert store.append("t", 0, b"x") == 0
        assert verify_folder(path).ok
        assert not list(path.rglob(f"{RETIRED_PREFIX}*"))
    pytest.fail("the store was never opened")


def test_spare_is_complete_from_the_moment_that_it_has_its_name(tmp_path: Path) -> None:
    sizes = list[int]()

    class Looking(OsDisk):
        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            sizes.extend([new.stat().st_size] if new.suffix == ".seg" else [])

    with MessageStore.open(tmp_path, PREWRITING, disk=Looking()):
        assert len(segment_paths(tmp_path)) == len(segment_paths(tmp_path, lane=1)) == 4
    assert set(sizes) == {64 * KIB}


def test_names_that_a_killed_process_has_given_are_forced_before_anything_is_acknowledged(tmp_path: Path) -> None:
    """The process dies between a name and the force of its folder; the power is cut in the next one's life."""

    class Killed(BaseException):
        pass

    for at in range(1, 60):
        disk = SimulatedDisk()
        forces = list[Path]()

        def die(operation: Any, at: int = at, forces: list[Path] = forces) -> None:
            if operation.kind == "force_folder":
                forces.append(operation.path)
                if len(forces) == at:
                    raise Killed

        path = tmp_path / str(at)
        disk.on_operation = die
        try:
            MessageStore.open(path, PREWRITING, disk=disk).close()
        except Killed:
            pass
        else:
            assert at > 5
            return
        disk.on_operation = None
        second = MessageStore.open(path, tiny(lanes=2), disk=disk)
        assert [second.append("t", queue, b"acknowledged") for queue in range(8)] == [0] * 8
        left = disk.crash(random.Random(at), "none")
        second.close()
        with MessageStore.open(path, tiny(), disk=left) as third:
            assert [third.queue_bounds("t", queue) for queue in range(8)] == [(0, 1)] * 8
    pytest.fail("the store was never opened")


# -- descriptors, locks, threads ----------------------------------------------------------------------


def test_descriptor_that_was_closed_is_not_closed_again(tmp_path: Path) -> None:
    """Its number is soon another file's, of the program's own."""
    file = OsFile(tmp_path / "f", create=True, direct=False)
    number = file.fileno()
    file.close()
    mine = os.open(tmp_path / "mine", os.O_CREAT | os.O_WRONLY)
    os.dup2(mine, number)
    file.close()
    del file
    gc.collect()
    os.fstat(number)
    for one in {mine, number}:
        os.close(one)


def test_descriptor_whose_close_was_interrupted_anywhere_is_closed_once(tmp_path: Path) -> None:
    for place in places():
        file = OsFile(tmp_path / "f", create=True, direct=False)
        number = file.fileno()
        came, _ = interrupt_at(place, ("store/device/os_file.py", "store/device/descriptor.py"), file.close)
        mine = os.open(tmp_path / "mine", os.O_CREAT | os.O_WRONLY)  # takes the lowest number that is free
        file.close()
        del file
        gc.collect()
        os.fstat(mine)
        if mine != number:
            with pytest.raises(OSError):
                os.fstat(number)
        os.close(mine)
        if not came:
            return


@pytest.mark.parametrize("when", ["before", "after"])
def test_interrupted_start_of_a_thread_does_not_keep_its_join_waiting(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    done = list[int]()
    go, inside = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        go.wait(60)
        done.append(1)

    thread = Background(work)
    really = start_new_thread

    def interrupted(function: Any, given: Any) -> None:
        if when == "after":
            really(function, given)
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr("stratalog.store.device.background.start_new_thread", interrupted)
        with pytest.raises(Interrupted):
            thread.start()
    assert when == "before" or inside.wait(60)
    go.set()
    for _ in range(3):
        thread.join()
    if when == "before":
        thread._run()  # as one that comes late
    assert done == ([1] if when == "after" else [])


def test_bell_wakes_once_it_is_set_and_until_it_is_cleared() -> None:
    bell = Bell()
    assert not bell.wait(0.001)
    for _ in range(3):
        bell.set()
    assert bell.wait() and bell.wait(0) and bell.is_set()
    bell.clear()
    assert not bell.is_set() and not bell.wait(0.001)
    waiting = start(bell.wait)
    bell.set()
    waiting.join()


def test_lock_that_is_dropped_is_free(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.take()
    del lock
    again = FolderLock(tmp_path)
    again.take()
    again.release()
    again.release()


def test_store_that_is_dropped_warns_is_written_and_can_be_opened_again_at_once(tmp_path: Path) -> None:
    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    for number in range(10):
        store: MessageStore | None = MessageStore.open(tmp_path, tiny(lanes=2))
        assert store is not None
        ticket = store.submit("t", 0, b"%d" % number)
        with pytest.warns(ResourceWarning, match="was never closed"):
            store = None
        with MessageStore.open(tmp_path) as again:
            assert again.queue_bounds("t", 0) == (0, number + 1)
            assert ticket.result(0) == number
    until(lambda: len(os.listdir("/proc/self/task")) <= threads and len(os.listdir("/proc/self/fd")) <= files)


@pytest.mark.parametrize("interrupts", [1, 3])
def test_interrupted_close_and_a_drop_leave_the_folder_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupts: int
) -> None:
    disk = GatedDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"x")

    def interrupted() -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(store._flushers[0], "join", interrupted)
        for _ in range(interrupts):
            with pytest.raises(Interrupted):
                store.close()
    del store
    with MessageStore.open(tmp_path, tiny()) as again:
        assert again.queue_bounds("t", 0) == (0, 1)


def test_drop_whose_finalizer_is_interrupted_is_ended_by_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MessageStore, "__del__", lambda store: None)
    store = MessageStore.open(tmp_path, tiny())
    store.append("t", 0, b"x")
    del store
    with MessageStore.open(tmp_path, tiny()) as again:
        assert again.queue_bounds("t", 0) == (0, 1)


AT_EXIT = """
import sys, threading
from stratalog import MessageStore
path, how = sys.argv[1:]
store = MessageStore.open(path)
def later():
    threading.main_thread().join()
    store.submit("t", 0, b"of a thread that outlives the main one")
if how == "thread":
    threading.Thread(target=later).start()
for number in range(5):
    store.submit("t", 0, b"%d" % number)
if how == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "messages"), [("return", 5), ("raise", 5), ("thread", 6)])
def test_what_was_handed_over_is_stored_when_the_interpreter_ends_without_a_close(
    tmp_path: Path, how: str, messages: int
) -> None:
    done = run_child(AT_EXIT, str(tmp_path), how)
    assert done.stderr == ""
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, messages)
        assert store.stats()["recovery"]["scanned_bytes"] < 64 * KIB  # a clean close


# -- lanes apart --------------------------------------------------------------------------------------


class SlowMaking(WatchedDisk):
    """The system's disk; while the gate is shut, no segment of lane 0 gets its zeros or its footer."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if kind in ("reserve", "truncate") and path.parent.name == "lane-00" and not self.gate.is_set():
            self.waits.set()
            self.gate.wait()


def test_lane_with_a_spare_waits_neither_for_the_prewriting_nor_for_the_sealing_of_another(tmp_path: Path) -> None:
    disk = SlowMaking()
    with MessageStore.open(tmp_path, tiny(lanes=2, prewrite_bytes=512 * KIB), disk=disk) as store:
        queues = {store._appender._stream("t", queue).lane.index: queue for queue in range(20)}
        disk.gate.clear()
        filling = start(lambda: [store.append("t", queues[0], bytes(30_000)) for _ in range(12)])
        assert disk.waits.wait(60)
        for number in range(5):  # into its third segment
            assert store.append("t", queues[1], bytes(30_000)) == number
        disk.gate.set()
        filling.join()


def test_footer_that_cannot_be_written_keeps_no_other_lane_from_being_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        seal_now = store._upkeep.sealer.seal_now

        def refuse(lane: Any, full: Any) -> None:
            if lane.index == 0:
                raise OSError(errno.EIO, "refused")
            seal_now(lane, full)

        monkeypatch.setattr(store._upkeep.sealer, "seal_now", refuse)
        for _ in range(8):
            store.append_batch([("t", queue, bytes(10_000)) for queue in range(8)])
        until(lambda: len(store._lanes[1].view.sealed) > 2)
        assert not store._lanes[0].view.sealed
        until(lambda: "refused" in (store.stats()["last_background_error"] or ""))


# -- forces -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("marks")
def test_idle_store_with_durability_os_is_forced_once_and_no_more(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(durability="os", flush_interval_ms=10)) as store:
        store.append("t", 0, b"x")
        lane = store._lanes[0]
        until(lambda: lane.under_way.forced == lane.tail and not lane.wants_mark())
        barriers = list[object]()
        put = store._queues[0].put
        store._queues[0].put = lambda *given, **how: barriers.append(given) or put(*given, **how)  # type: ignore
        looks = list[None]()
        force = store._upkeep._force
        store._upkeep._force = lambda: looks.append(force())
        until(lambda: len(looks) > 10)
        assert barriers == []
        store.append("t", 0, b"y")
        until(lambda: lane.under_way.forced == lane.tail and len(barriers) > 1)


def test_bytes_in_flight_are_not_overwritten_whatever_the_interpreter_leaves_out(tmp_path: Path) -> None:
    """Not by an assertion, which `python -O` has not."""
    with MessageStore.open(tmp_path, small()) as store:
        store.append("t", 0, b"x")
        lane = store._lanes[0]
        lane.ring = Ring(4096)
        with pytest.raises(RuntimeError, match="too small for the writes in flight"):
            lane.reserve(lane.durable + 8192)


# -- systems ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda patch: patch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False), "free-threaded"),
        (lambda patch: patch.setattr(sys, "byteorder", "big"), "big-endian"),
        pytest.param(
            lambda patch: patch.setattr("stratalog.store.device.system.OPEN_FILES", Path("/none")),
            "mount /proc",
            marks=pytest.mark.linux,
        ),
    ],
)
def test_system_that_the_store_cannot_run_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[Any], None], message: str
) -> None:
    break_it(monkeypatch)
    with pytest.raises(StoreUnusable, match=message):
        MessageStore.open(tmp_path / "data")
    assert not (tmp_path / "data").exists()


REFUSE = """
import ctypes, errno, struct, sys
from stratalog import MessageStore
from stratalog.testing import TunedConfig
path, code = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
step = lambda what, yes, no, value: struct.pack("HBBI", what, yes, no, value)
calls = {"x86_64": (328, 285), "aarch64": (287, 47)}[__import__("platform").machine()]  # pwritev2, fallocate
program = step(0x20, 0, 0, 0) + step(0x15, 1, 0, calls[0]) + step(0x15, 0, 1, calls[1])
program += step(0x06, 0, 0, 0x00050000 | code) + step(0x06, 0, 0, 0x7FFF0000)
filters = ctypes.create_string_buffer(program)
wanted = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(filters))
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, ctypes.c_char_p(wanted), 0, 0) != 0:
    print("no filter")
    raise SystemExit
with MessageStore.open(path, TunedConfig(segment_bytes=65536, max_message_bytes=9000, max_frame_bytes=9000)) as store:
    print([store.append("t", 0, bytes(8000)) for _ in range(20)][-1], store.stats()["poisoned"])
"""


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_call_that_the_system_refuses_is_done_without_and_poisons_nothing(tmp_path: Path, code: int) -> None:
    done = run_child(REFUSE, str(tmp_path), str(code))
    if done.stdout == "no filter\n":
        pytest.skip("this system installs no filter for system calls")
    assert done.stdout == "19 None\n", done.stderr
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, 20)


@pytest.mark.linux
@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_force_follows_a_write_whose_flag_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = OsFile(tmp_path / "f", create=True, direct=False)
    really, forces = os.pwritev, list[int]()

    def pwritev(number: int, parts: Any, position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(code, os.strerror(code))
        return really(number, parts, position)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "fdatasync", forces.append)
    for number in range(3):
        file.write([b"x" * 10], 10 * number, force=True)
        assert forces == [file.fileno()] * (number + 1)
    assert file.read(0, 100) == b"x" * 30


def test_spares_that_are_given_back_leave_no_gap_in_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedDisk, "free_bytes", lambda disk, folder: 1 << 40)  # others are quicker to take it
    for spares in (1, 3):
        path, disk = tmp_path / str(spares), SimulatedDisk()
        MessageStore.open(path, tiny(), disk=disk).close()
        disk.capacity_bytes = disk.used_bytes() + 64 * KIB * spares
        crashes = list[SimulatedDisk]()
        disk.on_operation = lambda operation, disk=disk, crashes=crashes: crashes.extend(
            disk.crash(random.Random(seed)) for seed in range(2) if operation.kind in ("remove", "force_folder")
        )
        with pytest.raises(StoreFull):
            MessageStore.open(path, tiny(prewrite_bytes=512 * KIB), disk=disk)
        assert len(crashes) > 2 * spares
        for left in crashes:
            left.capacity_bytes = None
            MessageStore.open(path, tiny(), disk=left).close()


def test_thread_that_holds_a_ticket_of_a_dropped_store_gets_its_answer(tmp_path: Path) -> None:
    disk = GatedDisk()
    store: MessageStore | None = MessageStore.open(tmp_path, tiny(), disk=disk)
    assert store is not None
    store.append("t", 0, b"x")
    disk.gate.clear()
    ticket = store.submit("t", 0, b"y")
    until(lambda: store is not None and handed_over(store) == 2)
    with pytest.warns(ResourceWarning):
        store = None
    disk.gate.set()
    assert ticket.result(60) == 1


def test_repaired_store_without_its_header_is_not_taken_for_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "quarantine").mkdir()
    with pytest.raises(StoreUnusable, match="it has quarantine"):
        MessageStore.open(tmp_path)
