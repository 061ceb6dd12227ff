"""Buffers of large batches: used again, but never while somebody can still see what is in them."""

from __future__ import annotations

import threading

import numpy as np

from stratalog.store.device.buffers import KEPT_BYTES, LEAST_BYTES, POOLED_BYTES, WASTED_TIMES, BufferPool

from .interrupts import interrupt_at, places

BUFFERS = ("device/buffers.py",)


def lent(pool: BufferPool, content: bytes) -> memoryview:
    buffer = pool.take(len(content))
    buffer.write(content)
    return pool.lend(buffer, len(content))


def test_view_shows_what_was_written_and_cannot_be_written_to() -> None:
    view = lent(BufferPool(), b"abc")
    assert bytes(view) == b"abc"
    assert view.readonly


def test_buffer_is_used_again_once_nobody_holds_a_view() -> None:
    pool = BufferPool()
    buffer = pool.take(POOLED_BYTES)
    view = pool.lend(buffer, 10)
    del view
    assert pool.take(LEAST_BYTES) is buffer


def test_who_keeps_a_few_bytes_keeps_no_large_buffer() -> None:
    pool = BufferPool()
    lent(pool, bytes(2 * WASTED_TIMES * LEAST_BYTES))  # free, and too large for what follows
    for size in (1, 1000, POOLED_BYTES - 1, POOLED_BYTES, LEAST_BYTES):
        for view in (lent(pool, bytes(size)), pool.joined([bytes(size)], size)):
            assert len(view) == size
            assert memoryview(view.obj).nbytes <= max(2 * size, LEAST_BYTES if size >= POOLED_BYTES else 0)


def test_buffer_is_not_used_while_a_slice_or_an_array_of_it_is_held() -> None:
    pool = BufferPool()
    size = POOLED_BYTES
    one, two = lent(pool, b"1" * size)[1:2], np.frombuffer(lent(pool, b"2" * size), np.uint8)
    for _ in range(5):
        lent(pool, b"." * size)
    assert (bytes(one), bytes(two)) == (b"1", b"2" * size)


def test_larger_batch_gets_a_larger_buffer() -> None:
    pool = BufferPool()
    lent(pool, b"small")
    content = bytes(range(256)) * (LEAST_BYTES // 128)
    assert bytes(lent(pool, content)) == content


def test_pool_keeps_a_bounded_number_of_bytes() -> None:
    pool = BufferPool()
    views = [lent(pool, bytes([index % 256]) * POOLED_BYTES) for index in range(2 * KEPT_BYTES // LEAST_BYTES)]
    assert kept_bytes(pool) == KEPT_BYTES
    assert [view[0] for view in views] == [index % 256 for index in range(len(views))]
    pool.clear()
    assert [view[0] for view in views] == [index % 256 for index in range(len(views))]


def kept_bytes(pool: BufferPool) -> int:
    return sum(len(buffer.getbuffer()) for buffer in pool._kept)


def test_interrupted_calls_leave_the_pool_its_size() -> None:
    """It keeps as much as before, and no more, at whatever place of a call an interrupt comes."""
    pool, most = BufferPool(4 * LEAST_BYTES), 4 * LEAST_BYTES
    for place in places():
        came, _ = interrupt_at(place, BUFFERS, lambda: lent(pool, bytes(POOLED_BYTES)))
        views = [lent(pool, bytes(POOLED_BYTES)) for _ in range(8)]
        assert len(views) == 8
        assert kept_bytes(pool) == most, place
        if not came:
            break


def test_threads_never_share_a_buffer() -> None:
    pool = BufferPool()
    wrong: list[memoryview] = []

    def work(mark: int) -> None:
        held: list[memoryview] = []
        for _ in range(100):
            held = [*held[-2:], lent(pool, bytes([mark]) * POOLED_BYTES)]
            wrong.extend(view for view in held if bytes(view) != bytes([mark]) * POOLED_BYTES)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
