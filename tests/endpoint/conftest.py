"""gRPC is quiet: tests do to it what it would write about. And the official Node client, where it can be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .node_package import installed

os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the official Node client, installed once for all workers of the suite."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "node client"
    if reason := installed(folder):
        pytest.skip(reason)
    return folder
