"""The official Node client, unmodified, from the package index. Skipped without node, npm or the index."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint

SCRIPT = Path(__file__).parent / "official_client.js"
RUN_S = 120


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
