"""The servers that adapters start end with them, whatever happens. The servers here are no servers."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from stratalog.perf.peers import nats, redis
from stratalog.perf.peers.by_thread import ByThread
from stratalog.perf.peers.nats import Nats
from stratalog.perf.peers.redis import Redis

pytest.importorskip("redis")
pytest.importorskip("nats")


@pytest.fixture
def deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that writes its number to `tmp_path/pid`, and answers nothing."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    program = tmp_path / "deaf"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/made\nmv {tmp_path}/made {tmp_path}/pid\nexec sleep 300\n")
    program.chmod(0o755)
    return program


def assert_ended(program: Path) -> None:
    number = int(program.with_name("pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert list(program.with_name("temporary").iterdir()) == []


def test_server_that_does_not_answer_is_killed(deaf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "LOADED_S", 1.0)
    monkeypatch.setattr(nats, "STARTED_S", 1.0)
    with pytest.raises(OSError, match="Redis does not answer"):
        Redis(deaf.parent, server=str(deaf))
    assert_ended(deaf)
    deaf.with_name("pid").unlink()
    with pytest.raises(OSError, match="NATS does not answer"):
        Nats(deaf.parent, server=str(deaf))
    assert_ended(deaf)


def test_server_that_does_not_start_leaves_nothing(deaf: Path) -> None:
    for kind in (Redis, Nats):
        with pytest.raises(FileNotFoundError):
            kind(deaf.parent, server=str(deaf.with_name("nothing")))
    assert list(deaf.with_name("temporary").iterdir()) == []


class Stuck:
    """A connection whose closing does not come to an end."""

    async def close(self) -> None:
        await asyncio.sleep(300)


def test_server_is_killed_also_if_its_connection_does_not_close(deaf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def address(self: Nats, folder: Path, server: object) -> str:
        while not deaf.with_name("pid").exists():
            pass
        return ""

    async def open_(self: Nats, address: str) -> None:
        self._connection = Stuck()

    monkeypatch.setattr(Nats, "_address", address)
    monkeypatch.setattr(Nats, "_open", open_)
    monkeypatch.setattr(nats, "CLOSED_S", 1.0)
    peer = Nats(deaf.parent, server=str(deaf))
    with pytest.raises(TimeoutError):
        peer.close()
    assert_ended(deaf)


def test_every_connection_is_closed_also_after_one_that_raises() -> None:
    closed: list[str] = []

    class One:
        def close(self) -> None:
            closed.append("one")
            raise OSError("not closed")

    connections = ByThread(One)
    connections.get()
    connections._all.append(One())
    with pytest.raises(OSError, match="not closed"):
        connections.close()
    assert closed == ["one", "one"]
