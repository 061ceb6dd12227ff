"""The processes of a measurement that read what another one writes."""

from __future__ import annotations

import os
import signal

import pytest

from stratalog.perf.workload.reader_processes import processes

WAIT_S = 60.0


@pytest.mark.parametrize("which", [0, -1])
def test_a_process_that_ends_early_is_an_error_that_names_it(which: int) -> None:
    """Nobody waits for ever for what it would have sent."""
    with pytest.raises(RuntimeError, match=r"process \d+ with code -9 ended before its work was done"):  # noqa: SIM117  # the processes are its
        with processes(2) as made:
            os.kill(made[which].pid, signal.SIGKILL)
            assert made[which].pipe.poll(WAIT_S), "its pipe is still open"
            made[which].pipe.recv()
