"""A store that is served, and programs beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog import MessageStore
from tests.contract.served import CONFIG, Served

ROOT = Path(__file__).resolve().parents[3]
Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """An open store."""
    with MessageStore.open(tmp_path / "store", CONFIG) as one:
        yield one


@pytest.fixture
def served(store: MessageStore) -> Iterator[Served]:
    """The store, served."""
    one = Served(store)
    yield one
    one.stop()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `child`; the process, and its first line."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "tests.endpoint.remote.child", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def port_of(address: str) -> int:
    """The port of host:port."""
    return int(address.rpartition(":")[2])
