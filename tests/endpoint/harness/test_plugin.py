"""pytest's plugin: fixtures without an import, markers, settings; and the example project with its own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

def test_a_store(message_store, tmp_path):
    assert message_store.append("orders", 0, b"x") == 0
    assert (tmp_path / "message_store").is_dir()

def test_an_endpoint(rocketmq, message_store):
    assert rocketmq.address.startswith("127.0.0.1:") and rocketmq.store is not message_store
    assert (rocketmq._config.durability, rocketmq.faults.seed) == ("force", 7)

@pytest.mark.rocketmq(durability="os", fifo_groups=["g"], seed=8)
class TestMarked:
    @pytest.mark.rocketmq(max_attempts=2, seed=9)
    def test_the_nearest_marker_counts(self, rocketmq):
        assert (rocketmq._config.durability, rocketmq.faults.seed) == ("os", 9)
        options = rocketmq.endpoint.options
        assert (options.fifo_groups, options.max_attempts) == (["g"], 2)

@pytest.mark.message_store(durability="os", lanes=2)
def test_a_store_with_settings(message_store):
    message_store.append("orders", 0, b"x")

@pytest.mark.rocketmq(nothing=1)
def test_an_option_that_there_is_not(rocketmq):
    pass

@pytest.mark.rocketmq("os")
def test_an_option_without_a_name(rocketmq):
    pass
"""
IDLE = """
import sys

def test_nothing_is_imported():
    assert "pytest_stratalog" in sys.modules
    assert not {"stratalog", "numpy", "grpc", "google.protobuf"} & sys.modules.keys()
"""


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a pytest of its own, and what it has said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_fixtures_are_there_without_an_import(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nstratalog_durability = force\nrocketmq_seed = 7\n")
    _, said = run_pytest(tmp_path, "--strict-markers")
    assert "4 passed, 2 errors" in said, said
    assert "unexpected keyword argument 'nothing'" in said and "takes options by name" in said


def test_a_run_that_uses_no_fixture_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(IDLE)
    code, said = run_pytest(tmp_path)
    assert code == 0, said


@pytest.mark.parametrize(
    ("page", "after", "more"),
    [
        ("how-to/testing.md", "\n## RocketMQ\n", 1),  # one is a test of two deaths
        ("tutorials/test-harness.md", "", 4),  # one is a test of five seeds
    ],
)
def test_the_examples_of_the_page_pass(tmp_path: Path, page: str, after: str, more: int) -> None:
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text[text.index(after) :], re.MULTILINE | re.DOTALL)
    (tmp_path / "test_page.py").write_text("\n".join(blocks))
    code, said = run_pytest(tmp_path)
    count = sum(block.count("def test_") for block in blocks)
    assert code == 0 and f"{count + more} passed" in said, said


@pytest.mark.disk
def test_the_example_project_passes() -> None:
    code, said = run_pytest(ROOT / "examples" / "orders")
    assert code == 0 and "10 passed" in said, said
