"""Power cuts at steps of staging, committing and attaching. The long form: `python -m tests.store.shards`."""

from __future__ import annotations

from tests.seeds import draw_seed

from .crashes import run_round


def test_a_cut_at_any_step_leaves_the_commit_done_or_not_done() -> None:
    assert run_round(draw_seed(), share=0.4) > 5


def test_a_cut_while_rows_become_segments_leaves_the_commit_done_or_not_done() -> None:
    assert run_round(draw_seed(), share=0.5, only_segments=True) > 5
