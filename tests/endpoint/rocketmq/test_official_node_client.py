"""The official Node client, unmodified, from the package index. Skipped without node, npm or the index."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint

PACKAGE = "rocketmq-client-nodejs"
SCRIPT = Path(__file__).parent / "official_client.js"
INSTALL_S, RUN_S = 120, 120


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process of the suite at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client, installed once for all workers of the suite."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no node or no npm")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "node client"
    folder.mkdir(exist_ok=True)
    with alone(folder / "lock"):
        if not (folder / "installed").exists():
            (folder / "package.json").write_text("{}")
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
            try:
                done = subprocess.run(
                    command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
                )
                failed = done.stderr[-500:] if done.returncode else ""
            except subprocess.TimeoutExpired:
                failed = f"it took more than {INSTALL_S} s"
            (folder / "installed").write_text(failed)
        failed = (folder / "installed").read_text()
    if failed:
        pytest.skip(f"{PACKAGE} cannot be installed: {failed}")
    return folder


def run_client(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What the client has seen."""
    done = subprocess.run(
        ["node", str(SCRIPT), *arguments], cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False,
        env=os.environ | {"HOME": str(folder)} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_node_sends_and_receives_every_kind_of_message(store: MessageStore, node_folder: Path) -> None:
    options: dict[str, Any] = {
        "fifo_groups": ["lines"], "max_attempts": 2, "retry_delays_ms": [0], "long_polling_ms": 1000,
        "check_first_ms": 300,
    }  # fmt: skip
    with RocketMQEndpoint(store, **options) as endpoint:
        seen = run_client(node_folder, endpoint.address)
    assert "recall failed" in seen.pop("recalledAgain")
    assert seen == {
        "normal": ["one", "a", ["k1"], {"price": "5"}, True],
        "tags": ["a", "c"],
        "sql": ["b", "c"],
        "order": [[str(number), "line"] for number in range(5)],
        "delay": [["soon"], True, True],
        "transactions": ["kept", "orphan"],
        "again": [1, 2, True],
        "push": ["bad 1", "bad 2", "good 1"],
        "letter": ["bad", "push"],
    }


def test_node_speaks_tls_at_the_same_port(store: MessageStore, node_folder: Path, tmp_path: Path) -> None:
    with RocketMQEndpoint(store) as endpoint:
        roots = tmp_path / "roots.pem"
        roots.write_bytes(endpoint.certificate_pem())
        seen = run_client(node_folder, endpoint.address, "tls", GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(roots))
    assert seen == {"normal": ["one", "a", ["k1"], {"price": "5"}, True]}
