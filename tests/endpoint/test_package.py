"""The endpoint is an extra: without it `stratalog` works, and says what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..store.helpers import ROOT

WITHOUT = "import sys; sys.modules[{name!r}] = None\n"


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_store_loads_neither_grpc_nor_protobuf() -> None:
    done = python("import stratalog, stratalog.console.app, sys; print({'grpc', 'google.protobuf'} & set(sys.modules))")
    assert done.stdout == "set()\n", done.stderr


def test_without_the_extra_an_import_says_what_is_missing() -> None:
    for name in ("grpc", "google.protobuf"):
        done = python(WITHOUT.format(name=name) + "import stratalog.endpoint")
        assert "needs the extra `rocketmq`" in done.stderr and "pip install 'stratalog[rocketmq]'" in done.stderr


def test_without_the_extra_serve_says_what_is_missing(tmp_path: Path) -> None:
    done = python(
        WITHOUT.format(name="grpc") + "from stratalog.console import main; main()", "serve", str(tmp_path / "store")
    )
    assert done.returncode == 3
    assert "pip install 'stratalog[rocketmq]'" in done.stderr and "Traceback" not in done.stderr


def test_without_the_extra_its_measurement_says_what_is_missing(tmp_path: Path) -> None:
    program = WITHOUT.format(name="grpc") + "from stratalog.console import main; main()"
    done = python(program, "bench", "endpoint", "--short", "--dir", str(tmp_path))
    assert done.returncode == 3 and list(tmp_path.iterdir()) == []
    assert "pip install 'stratalog[rocketmq]'" in done.stderr and "Traceback" not in done.stderr


def test_without_cryptography_plaintext_works_and_tls_says_what_is_missing(tmp_path: Path) -> None:
    done = python(
        WITHOUT.format(name="cryptography")
        + """
import stratalog
from stratalog.endpoint import CertificateUnusable, RocketMQEndpoint
with stratalog.MessageStore.open(sys.argv[1]) as store, RocketMQEndpoint(store) as endpoint:
    try:
        endpoint.certificate_pem()
    except CertificateUnusable as error:
        print(error)
""",
        str(tmp_path / "store"),
    )
    assert "pip install 'stratalog[rocketmq]'" in done.stdout, done.stderr
