"""Buffers of large batches: used again, but never while somebody can still see what is in them."""

from __future__ import annotations

import threading

import numpy as np

from stratalog.store.device.buffers import KEPT_BYTES, LEAST_BYTES, BufferPool


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
    buffer = pool.take(10)
    view = pool.lend(buffer, 10)
    del view
    assert pool.take(LEAST_BYTES) is buffer


def test_buffer_is_not_used_while_a_slice_or_an_array_of_it_is_held() -> None:
    pool = BufferPool()
    one, two = lent(pool, b"one")[1:2], np.frombuffer(lent(pool, b"two"), np.uint8)
    for _ in range(5):
        lent(pool, b"...")
    assert (bytes(one), bytes(two)) == (b"n", b"two")


def test_larger_batch_gets_a_larger_buffer() -> None:
    pool = BufferPool()
    lent(pool, b"small")
    content = bytes(range(256)) * (LEAST_BYTES // 128)
    assert bytes(lent(pool, content)) == content


def test_pool_keeps_a_bounded_number_of_bytes() -> None:
    pool = BufferPool()
    views = [lent(pool, bytes([index])) for index in range(2 * KEPT_BYTES // LEAST_BYTES)]
    assert pool._kept_bytes == sum(len(buffer.getbuffer()) for buffer in pool._kept) <= KEPT_BYTES
    assert [view[0] for view in views] == list(range(len(views)))
    pool.clear()
    assert [view[0] for view in views] == list(range(len(views)))


def test_threads_never_share_a_buffer() -> None:
    pool = BufferPool()
    wrong: list[memoryview] = []

    def work(mark: int) -> None:
        held: list[memoryview] = []
        for _ in range(200):
            held = [*held[-2:], lent(pool, bytes([mark]) * 4096)]
            wrong.extend(view for view in held if bytes(view) != bytes([mark]) * 4096)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
