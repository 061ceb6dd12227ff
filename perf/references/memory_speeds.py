"""The memory that tiers are made of, alone: how fast it is mapped, filled and read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

from .rawfile import incompressible

PIECE_BYTES, PAGE_BYTES = 1 << 20, mmap.PAGESIZE
SMALL_BYTES = 1 << 10


@contextmanager
def heap(size_bytes: int) -> Iterator[memoryview]:
    """Memory of the interpreter's own heap. Its pages have been touched, by the zeros that it is made of."""
    yield memoryview(bytearray(size_bytes))


@contextmanager
def anonymous(size_bytes: int) -> Iterator[memoryview]:
    """Memory off the heap: a mapping of no file."""
    with mmap.mmap(-1, size_bytes) as mapped, memoryview(mapped) as view:
        yield view


@contextmanager
def mapped_file(folder: Path, size_bytes: int) -> Iterator[memoryview]:
    """A shared mapping of a file, which has its blocks and is removed after."""
    path = folder / "mapped"
    with ExitStack() as undo:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        undo.callback(path.unlink)
        undo.callback(os.close, descriptor)
        os.posix_fallocate(descriptor, 0, size_bytes)
        mapped = undo.enter_context(mmap.mmap(descriptor, size_bytes))
        yield undo.enter_context(memoryview(mapped))


def first_touch(view: memoryview) -> float:
    """MB a second of the first touch of each page: of a mapping, which the kernel gives no page before."""
    began = perf_counter()
    for at in range(0, len(view), PAGE_BYTES):
        view[at] = 1
    return len(view) / (perf_counter() - began) / 1e6


def speeds(view: memoryview, seconds: float) -> dict[str, float]:
    """MB a second: "fill" and "read" in pieces of 1 MiB; and "small_us", the time to copy 1 KiB out of it."""
    piece = min(PIECE_BYTES, len(view))
    with memoryview(incompressible(piece)) as source:
        fill = _mb_per_s(view, piece, seconds / 3, lambda at: view.__setitem__(slice(at, at + piece), source[:piece]))
    target = memoryview(bytearray(piece))
    read = _mb_per_s(view, piece, seconds / 3, lambda at: target.__setitem__(slice(0, piece), view[at : at + piece]))
    return {"fill": fill, "read": read, "small_us": _small_us(view, seconds / 3)}


def _mb_per_s(view: memoryview, piece: int, seconds: float, move: Callable[[int], None]) -> float:
    places, done, began = len(view) // piece, 0, perf_counter()
    while True:
        move(done % places * piece)
        done += 1
        if (took := perf_counter() - began) >= seconds:
            return done * piece / took / 1e6


def _small_us(view: memoryview, seconds: float) -> float:
    step, places, done, began = 7919 * SMALL_BYTES, len(view) // SMALL_BYTES, 0, perf_counter()
    while True:
        for _ in range(64):
            at = done * step % (places * SMALL_BYTES)
            bytes(view[at : at + SMALL_BYTES])
            done += 1
        if (took := perf_counter() - began) >= seconds:
            return took / done * 1e6
