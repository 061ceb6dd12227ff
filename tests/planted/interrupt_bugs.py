"""Bugs that interrupts and the end of memory inside calls have shown."""

from __future__ import annotations

from .plant import Bug

INTERRUPTS: dict[str, Bug] = {
    "interrupts: a queue that could not be closed is waited for for ever": Bug(
        "store/api/running.py", "        if not flusher.queue.is_closed:", "        if False:",
        ("tests/store/test_closing.py::test_close_ends_where_memory_ends_while_a_queue_is_closed",),
    ),
}  # fmt: skip
