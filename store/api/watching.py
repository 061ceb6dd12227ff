"""What a store tells programs that watch it: the figures of `metrics()`, and of which process and moment they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..errors import StoreError


def telling(holder: Callable[[], object], wall_ms: Callable[[], int]) -> Callable[[], dict[str, Any] | None]:
    """What the upkeep calls for the figures. It knows the store by a weak reference alone; None without a store."""

    def figures() -> dict[str, Any] | None:
        store: Any = holder()
        if store is None or store.closed:
            return None
        try:
            return {"pid": os.getpid(), "at_ms": wall_ms(), **store._metric_figures()}
        except StoreError:  # it was closed meanwhile
            return None

    return figures
