"""The official Python client, unmodified, by TLS and by plaintext at one port, with users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint

from ...store.helpers import PATIENCE_S, ROOT


def client(address: str, kind: str, secret: str, roots: Path) -> subprocess.CompletedProcess[str]:
    """A run of the program, whose client trusts these certificates alone."""
    command = [sys.executable, "-m", "tests.endpoint.server.official_round", address, kind, "ak", secret]
    environment = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots), "HOME": str(roots.parent)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return MessageStore.open(tmp_path / "store", StoreConfig(durability="os"))


def test_an_official_client_sends_and_receives_by_tls_and_by_plaintext(store: MessageStore, tmp_path: Path) -> None:
    with store, RocketMQEndpoint(store, users={"ak": "sk"}) as endpoint:
        roots = tmp_path / "roots.pem"
        roots.write_bytes(endpoint.certificate_pem())
        by_tls = client(endpoint.address, "tls", "sk", roots)
        assert by_tls.stdout == "by tls\n", by_tls.stderr
        plain = client(endpoint.address, "plain", "sk", roots)
        assert sorted(plain.stdout.split("\n")) == ["", "by plain", "by tls"], plain.stderr
        wrong = client(endpoint.address, "plain", "wrong", roots)
        assert wrong.returncode != 0 and wrong.stdout == ""
