"""Power cuts at some steps of a compaction. The long form: `python -m tests.store.compact`."""

from __future__ import annotations

from tests.seeds import draw_seed

from .crashes import run_round


def test_a_cut_at_any_step_leaves_each_lane_as_it_was_or_compacted() -> None:
    seed, looked = draw_seed(), 0
    while looked < 6:  # of some rounds only the first state is drawn
        looked += run_round(seed, share=0.005)
        seed += 1
