"""A store for each test, with a clock that stands where the test wants it if the test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog import MessageStore, StoreConfig

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # clients log what the tests do to them


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", StoreConfig(durability="os")) as opened:
        yield opened
