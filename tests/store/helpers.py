"""What the store's tests share: small settings, stores that were not closed, damage to files."""

from __future__ import annotations

import atexit
import faulthandler
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from stratalog.store import MessageStore, StoreConfig, StoreReader
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.frame import Frame
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SealRecord, checksum64, lane_name, segment_name
from stratalog.store.format.live_page import LIVE_FILE
from stratalog.store.read.finder import Finder
from stratalog.store.segment.scanner import ChunkReader, FrameScanner
from stratalog.store.testing import TunedConfig

KIB = 1 << 10
PATIENCE_S = 100.0  # until something counts as hanging; no test waits so long on any machine that is alive
ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")

Snapshot = dict[str, bytes]
Queue = tuple[str, int]


def small(**changes: Any) -> StoreConfig:
    """Settings that make segments roll after a few dozen messages and memory hold little."""
    settings: dict[str, Any] = {
        "segment_bytes": 256 * KIB, "max_message_bytes": 64 * KIB, "max_frame_bytes": 64 * KIB,
        "recent_bytes": 0,
    }  # fmt: skip
    return TunedConfig(**{**settings, **changes})


def tiny(**changes: Any) -> StoreConfig:
    """The smallest segments there are."""
    return small(**{"segment_bytes": 64 * KIB, **changes})


@contextmanager
def small_frames() -> Iterator[None]:
    """A transaction with more than six messages is large inside, and a frame of one has at most six."""
    with ExitStack() as stack:
        for module in ("log.joint_group", "subscriptions.committing"):
            stack.enter_context(mock.patch(f"stratalog.store.{module}.MAX_FRAME_MESSAGES", 6))
            stack.enter_context(mock.patch(f"stratalog.store.{module}.MOST_WITH_IDS", 3))
        yield


def payload(seed: int, length: int) -> bytes:
    """The bytes that a seed stands for."""
    word = struct.pack("<Q", checksum64(struct.pack("<Q", seed)))
    return (word * (length // 8 + 1))[:length]


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where the system has one: for tests that open thousands of stores."""
    folder = Path(tempfile.mkdtemp(prefix="stratalog-", dir=SHM if SHM.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def simulated_home(name: str) -> Path:
    """A folder for stores on simulated disks. The lock is a real one, so no other process has this folder."""
    folder = Path(tempfile.gettempdir()) / f"stratalog-{name}-{os.getpid()}"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def segment_path(store: Path, sequence: int, lane: int = 0) -> Path:
    """A segment's file."""
    return store / lane_name(lane) / segment_name(sequence)


def place_of(store: StoreReader, queue: tuple[str, int], offset: int) -> tuple[Path, int]:
    """Where a message lies: its segment's file, and the position there."""
    stream = store._streams.topics[queue[0]][queue[1]]
    ((segment, flat, entries, _, _),) = Finder().parts(stream, stream.lane.view, offset, 1)
    return segment.path, flat[3 * entries[0]]


def segment_paths(store: Path, lane: int = 0) -> list[Path]:
    """All segment files of a lane, spares included."""
    return sorted((store / lane_name(lane)).glob("*.seg"))


def take_snapshot(store: Path) -> Snapshot:
    """All files of a folder, and its folders (with a slash), as they were at one moment: two readings must agree.

    Upkeep may be at work meanwhile. A mix of before and after is nothing that a crash could leave.
    """
    before, now = _read_all(store), _read_all(store)
    while now is None or now != before:
        before, now = now, _read_all(store)
    return now


def log_snapshot(store: Path) -> Snapshot:
    """The same without the live page, which every opening writes anew, and without spares."""
    return {
        name: content for name, content in take_snapshot(store).items()
        if name != LIVE_FILE and not is_spare(name, content)
    }  # fmt: skip


def is_spare(name: str, content: bytes) -> bool:
    """Is a file a new spare? One is made when the lane's segment is half full, in whichever opening has the time."""
    return name.endswith(".seg") and len(content) > 0 and not any(content)


def _read_all(store: Path) -> Snapshot | None:
    """One reading; None if a file moved away meanwhile."""
    try:
        paths = sorted(store.rglob("*"))
        folders = {f"{path.relative_to(store)}/": b"" for path in paths if path.is_dir()}
        files = {str(path.relative_to(store)): path.read_bytes() for path in paths if not path.is_dir()}
    except FileNotFoundError:
        return None
    return {**folders, **files}


def put_snapshot(snapshot: Snapshot, store: Path) -> Path:
    """Write a snapshot as the only content of a folder."""
    shutil.rmtree(store, ignore_errors=True)
    for name, content in snapshot.items():
        path = store / name
        folder = path if name.endswith("/") else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        if folder != path:
            path.write_bytes(content)
    return store


def crash_copy(store: Path, to: Path) -> Path:
    """A copy of an open store's folder: what a crash at this moment would leave."""
    return put_snapshot(take_snapshot(store), to)


def calls_that_read(store: StoreReader) -> dict[str, Callable[..., Any]]:
    """`read`, `read_batch` and `get_range`, with the arguments of `read`."""

    def get_range(topic: str, queue_id: int, offset: int, *, max_messages: int) -> dict[int, bytes]:
        return store.get_range(topic, queue_id, offset, max_messages)

    return {"read": store.read, "read_batch": store.read_batch, "get_range": get_range}


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    """Damage one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ (1 << bit)]))


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Damage a range of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def seal_of(path: Path) -> SealRecord | None:
    """A segment's seal record."""
    return SealRecord.unpack(path.read_bytes()[BLOCK_BYTES:DATA_START])


def frames_of(path: Path) -> list[Frame]:
    """The frames of a segment, found by their magic; a closed, healthy file is expected."""
    file = OsFile(path, create=False, direct=False)
    reader = ChunkReader(file, file.size())
    try:
        scanner = FrameScanner(reader, int(path.parent.name[5:]), int(path.stem), DATA_START, 0)
        headers = scanner.find_later(DATA_START, reader.size_bytes)
        frames = [scanner.frame_at(header.position) for header in headers]
        return [frame for frame in frames if frame is not None]
    finally:
        reader.close()
        file.close()


def without_marks(store: MessageStore) -> None:
    """No marks from now on, however slow the machine is: for processes of their own, whose background makes them."""
    store._upkeep._mark = lambda lane: None


def mark(store: MessageStore) -> None:
    """Have each lane say on disk that all of it is durable, as the background does in a program once it is quiet."""

    def is_marked() -> bool:
        store._upkeep._mark_idle()
        store.flush()
        return all(lane.segment is None or lane.marked == lane.under_way.forced_mark for lane in store._lanes)

    until(is_marked)


def handed_over(store: MessageStore) -> int:
    """Messages that were handed over since the store was opened, whether or not they are durable."""
    queued = sum(request.count for queue in store._queues for request in list(queue._items))
    return queued + sum(lane.counters.messages for lane in store._lanes)


def has_settled(store: MessageStore) -> bool:
    """Every full segment is sealed, and retention by bytes has removed what it may: nothing moves by itself now.

    It leaves the newest sealed segment of a lane and the open one, however large they are, and what is kept for
    delayed messages. If something does, the background looks now: retention takes a few looks, half a second apart.
    """
    limit, lanes, upkeep = store.config.retention_bytes, store._lanes, store._upkeep
    settled = not upkeep.sealer._full and all(len(lane.view.open) <= 1 for lane in lanes)
    settled = settled and (
        limit is None
        or not any(map(upkeep.removal._is_free, lanes))
        or upkeep.removal.held_bytes() <= limit + upkeep.removal.allowance()
    )
    if not settled:
        upkeep.wake()
    return settled


def full_frames(path: Path) -> list[Frame]:
    """The frames that have messages; the others are marks, written whenever a lane goes quiet."""
    return [frame for frame in frames_of(path) if frame.header.count]


def contents(store: StoreReader, queues: list[Queue]) -> dict[Queue, dict[int, bytes]]:
    """Every message of the queues: offset -> data."""
    found: dict[Queue, dict[int, bytes]] = {}
    for topic, queue_id in queues:
        first, next_offset = store.queue_bounds(topic, queue_id)
        rows: dict[int, bytes] = {}
        at = first
        while at < next_offset:
            messages = store.read(topic, queue_id, at, max_messages=64)
            if not messages:
                break  # nothing but lost messages is left
            rows.update({message.offset: message.data for message in messages})
            at = messages[-1].offset + 1
        found[topic, queue_id] = rows
    return found


def scanned(store: StoreReader) -> dict[Queue, dict[int, bytes]]:
    """The same by `scan`, for the queues that have messages."""
    found: dict[Queue, dict[int, bytes]] = {}
    for batch in store.scan():
        for index in range(len(batch)):
            rows = found.setdefault((batch.topic(index), batch.queue_id(index)), {})
            offset = int(batch.offsets[index])
            assert offset not in rows, "scan gave a message twice"
            rows[offset] = bytes(batch.payload(index))
    return found


def until(condition: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    """Wait for something that happens in the background."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            faulthandler.dump_traceback()  # who waits for what
            raise AssertionError("did not happen in time")
        time.sleep(0.005)  # so that what is waited for has the interpreter


@dataclass
class Worker:
    """A thread whose error is not lost: `join` raises it."""

    thread: threading.Thread
    errors: list[BaseException]

    def join(self, limit_s: float = PATIENCE_S) -> None:
        """Wait for the end, and raise what the thread raised."""
        self.thread.join(limit_s)
        assert not self.thread.is_alive(), f"{self.thread.name} is stuck"
        if self.errors:
            raise self.errors[0]


def start(work: Callable[..., object], *given: object) -> Worker:
    """Run in a thread."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work(*given)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=getattr(work, "__name__", "worker"))
    thread.start()
    return Worker(thread, errors)


def run_child(code: str, *arguments: str, limit_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own; its output is in the answer. The code may end in any way."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False,
    )  # fmt: skip
