"""Refused system calls: a documented error, a poisoned store, a clean recovery. `inject.py` is the long form."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog.portable import POSIX_ALONE

from ..seeds import draw_seed
from .child import Order
from .inject import FORCE, SETTINGS, SHORTEST, WAYS, WRITE, Bench, Refusal, strace, why_not
from .life import check_recovered, live

HIGHEST = {WRITE: 20, FORCE: 7, "fsync": 4, "fallocate": 3, "ftruncate": 3}
OFTEN = [(call, way) for call in HIGHEST for way in WAYS.get(call, ())]
DRAWS = 4


@pytest.fixture(autouse=True)
def can_refuse() -> None:
    if why_not():
        pytest.skip(why_not())


@pytest.mark.parametrize(("call", "way"), OFTEN, ids=lambda text: text.replace("error=", ""))
def test_refused_call_ends_in_a_documented_error_and_a_clean_recovery(tmp_path: Path, call: str, way: str) -> None:
    seed = draw_seed()
    chance, bench = random.Random(seed), Bench(tmp_path, seed)
    for _ in range(DRAWS):
        refusal = Refusal(call, way, chance.randint(1, HIGHEST[call]))
        print(refusal)
        if bench.refuse(refusal, chance.getrandbits(32))[1]:
            return
    assert bench.refuse(Refusal(call, way, 1), chance.getrandbits(32))[1]


def order(path: Path, **config: object) -> Order:
    """Messages that are far from filling the first segment: every call after its making is a frame's."""
    return Order(str(path), {**SETTINGS, "segment_bytes": 1 << 20, **config}, largest=500)


@pytest.mark.parametrize("way", ["error=EIO", "error=ENOSPC", "error=EROFS"])
def test_refused_forced_write_poisons(tmp_path: Path, way: str) -> None:
    path, log = tmp_path / "store", tmp_path / "log"
    life = live(order(path), Refusal(WRITE, way, 6, every=True).arguments(log))
    assert POSIX_ALONE or "RWF_DSYNC" in log.read_text(), "the engine forces by another call: refuse that one"
    assert life.names("append") == ["StorePoisoned"]
    assert life.told, "the first messages are acknowledged before the fault"
    check_recovered(path, life.told)


@pytest.mark.parametrize("way", ["error=EIO", "error=ENOSPC"])
def test_refused_force_poisons_a_store_that_forces_at_flush(tmp_path: Path, way: str) -> None:
    path = tmp_path / "store"
    lazy = order(path, durability="os", flush_interval_ms=3_600_000)
    forced = Refusal(FORCE, way, 1, every=True, file=path / "lane-00" / "000000000001.seg")
    life = live(lazy, forced.arguments(tmp_path / "log"))
    assert life.names("flush") == ["StorePoisoned"]
    assert life.poisoned
    check_recovered(path, life.told)


def test_device_that_takes_no_byte_poisons(tmp_path: Path) -> None:
    path = tmp_path / "store"
    every = Refusal("pwritev2,pwrite64", SHORTEST, 6, every=True)
    life = live(order(path), every.arguments(tmp_path / "log"))
    assert life.names("append") == ["StorePoisoned"]
    check_recovered(path, life.told)


@pytest.mark.linux  # with one call for both, the kinds cannot be told apart
def test_write_that_fails_after_a_short_one_poisons(tmp_path: Path) -> None:
    path, log = tmp_path / "store", tmp_path / "log"
    short_then_full = [  # the first pwrite64 of the main thread is that of the lock's file
        *strace(log, ["pwritev2", "pwrite64"]),
        "-e", "inject=pwritev2:retval=0:when=6+", "-e", "inject=pwrite64:error=ENOSPC:when=2+", "--",
    ]  # fmt: skip
    life = live(order(path), short_then_full)
    assert life.names("append") == ["StorePoisoned"]
    check_recovered(path, life.told)
