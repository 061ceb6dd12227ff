"""A short form of `python -m tests.index`."""

from __future__ import annotations

import logging

from tests.seeds import draw_seed

from .stress import Stress


def test_operations_that_many_threads_complete_while_they_time_out_end_once() -> None:
    logging.getLogger("stratalog").addFilter(nothing := lambda record: False)
    try:
        stress = Stress(draw_seed(), threads=8, operations=20_000)
        stress.run()
    finally:
        logging.getLogger("stratalog").removeFilter(nothing)
    assert stress.made == 20_000
    assert 0 < stress.expired < 20_000
