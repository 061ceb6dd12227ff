"""Running out of file descriptors: errors of ours, and everything works again once there are some."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreError, StoreFull, StoreUnusable
from tests.store.helpers import contents, run_child, tiny

from .child import APIS, Order
from .life import check_recovered, lives

NONE_LEFT_LIMIT = 256
MESSAGES = 60
DATA = bytes(40_000)  # one a segment

MANY_SEGMENTS = """
import resource, sys
from stratalog import MessageStore
from stratalog.testing import TunedConfig
config = TunedConfig(segment_bytes=65536, max_message_bytes=65536, max_frame_bytes=65536, recent_bytes=0)
with MessageStore.open(sys.argv[1], config) as store:
    for index in range(160):
        store.append("t", 0, bytes(40_000))
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
with MessageStore.open(sys.argv[1], config) as store:
    print(store.stats()["segments"]["sealed"] > 100, sum(map(len, store.scan())))
    print(sum(len(store.get_range("t", 0, at, 1)) for at in range(160)), store.append("t", 0, b"x"))
"""


@pytest.mark.parametrize("limit", [40, 120])
def test_store_of_many_segments_needs_few_file_descriptors(tmp_path: Path, limit: int) -> None:
    done = run_child(MANY_SEGMENTS, str(tmp_path), str(limit))
    assert done.stdout.split() == ["True", "160", "160", "160"], done.stderr


LOOKED_AT = """
import resource, sys
from stratalog import MessageStore, StoreError
from stratalog.testing import TunedConfig
from stratalog.tools import inspect_folder, verify_folder
config = TunedConfig(segment_bytes=65536, max_message_bytes=65536, max_frame_bytes=65536, recent_bytes=0, lanes=2)
store = MessageStore.open(sys.argv[1], config)
for index in range(300):
    store.append("t", index % 3, bytes(3000))
verify_folder(sys.argv[1])
refused = set()
for limit in range(10, 60, 3):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
    for look in (verify_folder, inspect_folder):
        try:
            look(sys.argv[1])
        except StoreError as error:
            refused.add(type(error).__name__)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
store.close()
print(*sorted(refused))
"""


def test_looking_at_a_store_without_descriptors_is_an_error_of_ours(tmp_path: Path) -> None:
    done = run_child(LOOKED_AT, str(tmp_path))
    assert done.stdout.split() and not done.returncode, done.stderr


@contextmanager
def none_left() -> Iterator[None]:
    """No file can be opened meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], max(used + 8, NONE_LEFT_LIMIT)), before[1]))
    taken: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many"):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[MessageStore]:
    """A store of many sealed segments, none of which was looked into since it was opened."""
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(MESSAGES):
            store.append("t", 0, DATA)
    with MessageStore.open(tmp_path, tiny()) as store:
        yield store


READS: dict[str, Callable[[MessageStore], object]] = {
    "read": lambda store: store.read("t", 0, 0, max_messages=1),
    "read_batch": lambda store: store.read_batch("t", 0, 0, max_messages=1),
    "get_range": lambda store: store.get_range("t", 0, 0, 1),
    "queue_bounds": lambda store: store.queue_bounds("t", 0),
    "scan": lambda store: sum(map(len, store.scan())),
}


@pytest.mark.parametrize("how", READS)
def test_read_without_a_descriptor_is_an_error_of_ours_and_harms_nothing(cold: MessageStore, how: str) -> None:
    with none_left(), pytest.raises(StoreError):
        READS[how](cold)
    READS[how](cold)
    assert len(contents(cold, [("t", 0)])["t", 0]) == MESSAGES


def test_open_without_a_descriptor_says_so_and_works_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        store.append("t", 0, DATA)
    with none_left(), pytest.raises(StoreUnusable, match="Too many"):
        MessageStore.open(tmp_path, tiny())
    with MessageStore.open(tmp_path, tiny()) as store:
        assert len(contents(store, [("t", 0)])["t", 0]) == 1


def test_append_that_needs_a_segment_without_a_descriptor_is_refused_and_works_later(tmp_path: Path) -> None:
    told = 0
    with MessageStore.open(tmp_path, tiny()) as store:
        with none_left(), pytest.raises(StoreFull):
            while told < 10:
                store.append("t", 0, DATA)
                told += 1
        assert store.append("t", 0, DATA) >= told
    with MessageStore.open(tmp_path, tiny()) as store:
        found = contents(store, [("t", 0)])["t", 0]
        assert len(found) > told
        assert set(found.values()) == {DATA}


def test_few_descriptors_are_enough_for_every_way_to_append(tmp_path: Path) -> None:
    config = {"segment_bytes": 64 << 10, "max_message_bytes": 64 << 10, "max_frame_bytes": 64 << 10, "lanes": 2}
    orders = [Order(str(tmp_path / api), config, api=api, descriptors=48, messages=120, largest=9000) for api in APIS]
    for order, life in zip(orders, lives(orders), strict=True):
        assert not life.errors, order
        check_recovered(Path(order.path), life.told)
