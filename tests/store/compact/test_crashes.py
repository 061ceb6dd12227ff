"""Power cuts at some steps of a compaction. The long form: `python -m tests.store.compact`."""

from __future__ import annotations

from tests.seeds import draw_seed

from .crashes import run_round


def test_a_cut_at_any_step_leaves_each_lane_as_it_was_or_compacted() -> None:
    assert run_round(draw_seed(), share=0.005) > 1
