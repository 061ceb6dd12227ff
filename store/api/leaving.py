"""Appends of coroutines that leave the line for space in the publish buffer."""

from __future__ import annotations

from ..device.sleepers import Cancels
from ..log.queue import RequestQueue
from ..log.request import AsyncRequest, Request, fail_ids


def give_up(queue: RequestQueue[Request], request: AsyncRequest) -> None:
    """Fail a request that has waited too long for space in the publish buffer."""
    error = queue.withdraw(request)
    if error is not None:
        fail_ids([request], None)
        if not request.future.done():
            request.future.set_exception(error)


def leave_line(queue: RequestQueue[Request], request: AsyncRequest, timer: Cancels) -> None:
    """Called when the append has its outcome: a cancelled one leaves the line for space."""
    timer.cancel()
    if request.future.cancelled() and queue.withdraw(request) is not None:
        fail_ids([request], None)
