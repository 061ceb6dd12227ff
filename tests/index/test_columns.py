"""Columns: the order of a stable sort."""

from __future__ import annotations

import numpy as np

from stratalog.index.columns import stable_order
from tests.seeds import draw_seed


def test_stable_order_is_the_order_of_a_stable_sort() -> None:
    chance = np.random.default_rng(draw_seed())
    for spread in (1, 3, 1 << 16, (1 << 16) + 1, 1 << 40, 1 << 62):
        for low in (0, -(2**62), 2**62 - 5):
            values = chance.integers(low, low + spread, 3_000, endpoint=True)
            order = stable_order(values)
            assert order is None or order.tolist() == np.argsort(values, kind="stable").tolist()
            assert stable_order(np.sort(values)) is None
    far_apart = stable_order(np.array([2**63 - 1, -(2**63)]))
    assert far_apart is not None and far_apart.tolist() == [1, 0]
