"""A short run of the fuzzer of the endpoint: `python -m tests.fuzz endpoint` makes long ones."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.seeds import draw_seed
from tests.store.helpers import PATIENCE_S, ROOT

CALLS = 800


def test_every_call_has_a_code_and_nothing_is_lost() -> None:
    """In a process of its own, as gRPC's client keeps threads."""
    command = [sys.executable, "-m", "tests.fuzz", "endpoint", "--calls", str(CALLS), "--seed", str(draw_seed())]
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing broken" in done.stdout
