"""What the indexes of delayed messages ask the subscriptions of their store."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class Subscribers(Protocol):
    """What the subscriptions of a store tell of themselves."""

    def topics(self) -> set[str]:
        """Those that have a subscription."""

    def unacknowledged(self, topic: str, queue_id: int, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) for which offsets, which ascend, some subscription of a topic has no acknowledgement."""
