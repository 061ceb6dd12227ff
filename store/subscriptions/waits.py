"""Waiting for something to give out: an operation of the store's purgatory, watched by the topic."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from ..read.waiting import ANY_QUEUE, CoroutineRead, Missing, ThreadRead, WaitingReaders

_ANYTHING = Missing(0, 1, 0, 1, None, 0)  # it is `has_news` that says


class _ThreadReceive(ThreadRead):
    """A thread's."""

    __slots__ = ("_has_news", "group")

    def __init__(
        self, readers: WaitingReaders, topic: str, has_news: Callable[[], bool], timeout_ms: int, group: object
    ) -> None:
        super().__init__(readers, (topic, ANY_QUEUE), _ANYTHING, timeout_ms)
        self._has_news = has_news
        self.group = group

    def try_complete(self) -> bool:
        return self._has_news()


class _CoroutineReceive(CoroutineRead):
    """A coroutine's."""

    __slots__ = ("_has_news", "group")

    def __init__(
        self, readers: WaitingReaders, topic: str, has_news: Callable[[], bool], timeout_ms: int, group: object
    ) -> None:
        super().__init__(readers, (topic, ANY_QUEUE), _ANYTHING, timeout_ms, asyncio.get_running_loop())
        self._has_news = has_news
        self.group = group

    def try_complete(self) -> bool:
        return self._has_news()


def wait(
    readers: WaitingReaders, topic: str, has_news: Callable[[], bool], patience_s: float, group: object
) -> None:  # fmt: skip
    """Sleep until there is something new, no longer than `patience_s`; it may wake without a reason.

    Of those of a group one is asked whether there is news.
    """
    readers.wait_for(_ThreadReceive(readers, topic, has_news, _timeout_ms(patience_s), group), patience_s)


async def wait_async(
    readers: WaitingReaders, topic: str, has_news: Callable[[], bool], patience_s: float, group: object
) -> None:  # fmt: skip
    """As `wait`, for a coroutine."""
    waits = readers.begin_for(_CoroutineReceive(readers, topic, has_news, _timeout_ms(patience_s), group), patience_s)
    try:
        await waits.rung
    finally:
        readers.end(waits)


def is_waited_for(readers: WaitingReaders, topic: str) -> bool:
    """Whether somebody waits for messages of a topic."""
    return readers.are_waiting((topic, ANY_QUEUE))


def wake(readers: WaitingReaders, topic: str) -> None:
    """Something is new that no append has told, or somebody has gone: all who wait look whether that is theirs."""
    readers.look_at([(topic, ANY_QUEUE)])


def wake_one(readers: WaitingReaders, topic: str) -> None:
    """There may be more: one of those who wait in each subscription of the topic looks."""
    readers.look_at([(topic, ANY_QUEUE)], one_a_group=True)


def _timeout_ms(patience_s: float) -> int:
    return math.ceil(patience_s * 1000)
