"""What a store tells programs that watch it: the figures of `metrics()`, and of which process and moment they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..errors import StoreError
from .store_reader import StoreReader


def figures_for_watchers(
    holder: Callable[[], object], wall_ms: Callable[[], int]
) -> Callable[[], dict[str, Any] | None]:  # fmt: skip
    """The function that the upkeep calls for the figures: it gives None once the store was closed or dropped.

    `holder` is a weak reference to the store: the function does not keep it.
    """

    def figures() -> dict[str, Any] | None:
        store = holder()
        if not isinstance(store, StoreReader) or store.closed:
            return None
        try:
            return {"pid": os.getpid(), "at_ms": wall_ms(), **store._metric_figures()}
        except StoreError:  # it was closed meanwhile
            return None

    return figures
