"""What is known of messages that were given out before: when, and why their consumers gave them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s

UNKNOWN_MS: Final = -1
NO_REASON: Final = 0  # in place of a reason's number
KEPT_REASONS: Final = 1024  # distinct texts; beyond so many, and beyond twice the used ones, the unused ones go


class Stories(NamedTuple):
    """Of n messages: int64 (n) each of the times when they were given out first and last, by the clock of deadlines,
    UNKNOWN_MS for none; and uint32 (n), the numbers of the reasons why they were given back last.
    """

    firsts_ms: Int64s
    lasts_ms: Int64s
    reasons: npt.NDArray[np.uint32]

    @property
    def size(self) -> int:
        """The number of messages."""
        return len(self.reasons)


NO_STORY: Final = Stories(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint32))


class Reasons:
    """The distinct reasons of a subscription, numbered. The state's lock guards it.

    A message has the number of its reason, so that many messages with one reason cost its text once.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._count = NO_REASON  # each number is given once
        self._limit = KEPT_REASONS

    def __len__(self) -> int:
        return len(self._texts)

    def number_of(self, reason: str) -> int:
        """The number of a text."""
        number = self._numbers.get(reason)
        if number is None:
            number = self._count = self._count + 1
            self._texts[number] = reason  # first: after an interrupt a number has its text
            self._numbers[reason] = number
        return number

    def texts(self, numbers: npt.NDArray[np.uint32]) -> list[str | None]:
        """(n,) the text of each number; None for NO_REASON."""
        return [self._texts.get(number) for number in numbers.tolist()]

    def forget_unused(self, used: Callable[[], npt.NDArray[np.uint32]]) -> None:
        """Forget texts that no message has, if there are many; `used` gives the numbers that messages have."""
        if len(self._texts) < self._limit:
            return
        texts = {number: self._texts[number] for number in np.unique(used()).tolist() if number in self._texts}
        self._numbers = {text: number for number, text in texts.items()}  # first: as above
        self._texts = texts
        self._limit = max(KEPT_REASONS, 2 * len(texts))
