"""The errors of the public face: one family, each of which survives a copy and a pickle."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog import store as package
from stratalog.store import (
    CacheConfig,
    MessageStore,
    OffsetOutOfRange,
    StoreConfig,
    StoreCorrupt,
    StoreError,
    StorePoisoned,
    TopicFull,
)
from stratalog.store.errors import copy_of
from stratalog.store.testing import TunedCacheConfig

from .helpers import tiny

PARTS: dict[type[StoreError], tuple[Any, ...]] = {
    StoreCorrupt: ("a frame is damaged", Path("/data/lane-00/1.seg"), 4096, "Look at it."),
    OffsetOutOfRange: ("orders", 3, 17, 5, 9),
    TopicFull: ("orders", "billing", 17, 3000, 2000),
}
ERRORS: list[StoreError] = [
    value(*PARTS.get(value, ("a sentence that says what to do",)))
    for value in (getattr(package, name) for name in package.__all__)
    if isinstance(value, type) and issubclass(value, StoreError)
]


def pickled(protocol: int) -> Callable[[StoreError], StoreError]:
    def copy_by(error: StoreError) -> StoreError:
        found: StoreError = pickle.loads(pickle.dumps(error, protocol))
        return found

    return copy_by


WAYS: dict[str, Callable[[StoreError], StoreError]] = {
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "copy_of": copy_of,
    **{f"pickle {protocol}": pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)},
}


def test_package_offers_its_errors_as_one_family() -> None:
    """Whatever it exports as an error, by whatever package that was made."""
    errors = [getattr(package, name) for name in package.__all__]
    errors = [value for value in errors if isinstance(value, type) and issubclass(value, BaseException)]
    assert len(errors) == len(ERRORS) == 20
    assert all(issubclass(error, StoreError) and error.__doc__ for error in errors)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_error_is_the_same_after_a_copy(error: StoreError, way: str) -> None:
    error.add_note("seen at night")
    found = WAYS[way](error)
    assert found is not error
    assert type(found) is type(error)
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_attributes_are_among_what_a_copy_has() -> None:
    corrupt, outside, full = (pickle.loads(pickle.dumps(kind(*parts))) for kind, parts in PARTS.items())
    assert (full.topic, full.subscription) == PARTS[TopicFull][:2]
    assert (corrupt.what, corrupt.file, corrupt.position) == ("a frame is damaged", "/data/lane-00/1.seg", 4096)
    assert (outside.first, outside.next_offset) == (5, 9)
    assert (outside.topic, outside.queue_id, outside.offset) == ("orders", 3, 17)


@pytest.mark.parametrize("way", ["read", "read_batch", "get_range", "trim"])
def test_offset_out_of_range_says_what_was_asked_for(tmp_path: Path, way: str) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("orders", 3, b"x")
        given = () if way in ("trim", "read", "read_batch") else (1,)
        with pytest.raises(OffsetOutOfRange) as caught:
            getattr(store, way)("orders", 3, 17, *given)
    error = caught.value
    assert (error.topic, error.queue_id, error.offset) == ("orders", 3, 17)
    assert (error.first, error.next_offset) == (0, 1)


def test_error_that_is_raised_again_keeps_its_cause() -> None:
    error = StorePoisoned("a write failed")
    error.__cause__ = OSError(5, "no")
    assert copy_of(error).__cause__ is error.__cause__


def read_past_the_end(path: str) -> None:
    with MessageStore.open(path, tiny()) as store:
        store.read("t", 0, 99)


def test_error_comes_out_of_a_worker_process(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(OffsetOutOfRange) as caught:
        pool.apply(read_past_the_end, (str(tmp_path),))
    assert (caught.value.first, caught.value.next_offset) == (0, 0)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: StoreConfig(lanes=0),
        lambda: CacheConfig(heap_bytes=-1),
        lambda: TunedCacheConfig(block_bytes=1000),
        lambda: MessageStore.open(None),  # type: ignore[call-overload]  # a mistake, as its caller makes it
        lambda: MessageStore.open("/dev/null/store"),
        lambda: MessageStore.open("data", {}),  # type: ignore[call-overload]  # the same
    ],
)
def test_mistake_is_an_error_of_the_family_before_anything_is_made(mistake: Callable[[], object]) -> None:
    with pytest.raises(StoreError):
        mistake()
    assert not Path("data").exists()
