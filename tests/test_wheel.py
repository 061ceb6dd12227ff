"""The package as it is installed: a wheel outside of the checkout, without the sources beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from .checkout import PARTS, copy_of_the_checkout

LEAST_SETUPTOOLS = (70, 1)  # makes wheels by itself
USE = """
import sys
from pathlib import Path
import cache, index, store  # the user's own
from stratalog import MessageStore, StoreConfig
import stratalog.cache, stratalog.index, stratalog.perf, stratalog.pipeline, stratalog.store
assert "pyspark" not in sys.modules and "grpc" not in sys.modules
parts = stratalog.cache, stratalog.index, stratalog.perf, stratalog.pipeline, stratalog.store
for module in (stratalog, *parts):
    assert Path(module.__file__).is_relative_to({target!r}), module.__file__
assert (cache.MINE, store.MINE, index.MINE) == (1, 2, 3)
with MessageStore.open("data", StoreConfig(segment_bytes=1 << 20)) as opened:
    assert [opened.append("orders", 0, b"%d" % number) for number in range(3)] == [0, 1, 2]
with MessageStore.open("data") as opened:
    assert opened.get_range("orders", 0, 0, 10) == {{0: b"0", 1: b"1", 2: b"2"}}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, without the network."""
    if tuple(int(part) for part in version("setuptools").split(".")[:2]) < LEAST_SETUPTOOLS:
        pytest.skip("setuptools is older than 70.1 and cannot make a wheel: install the extra `test` again")
    folder = tmp_path_factory.mktemp("wheel")
    with copy_of_the_checkout(folder / "sources") as sources:
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sources))
    [built] = folder.glob("*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_has_one_package_with_its_types_and_pytests_plugin(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert top == {"stratalog", "pytest_stratalog.py"}
    assert {"stratalog/py.typed", "stratalog/pipeline/log4j2.properties", "stratalog/console/top.html"} <= set(names)
    assets = {f"stratalog/perf/report/assets/{one}" for one in ("page.css", "page.js", "uplot.min.js", "uplot.min.css")}
    assert assets | {"stratalog/perf/report/assets/uplot-LICENSE"} <= set(names)
    for part in PARTS:
        sources = {name for name in names if name.startswith(f"stratalog/{part}/") and name.endswith(".py")}
        root = Path(__file__).resolve().parents[1]
        assert sources == {f"stratalog/{path.relative_to(root)}" for path in (root / part).rglob("*.py")}


def test_installed_wheel_works_beside_modules_of_the_same_names_as_its_parts(wheel: Path, tmp_path: Path) -> None:
    target, home = tmp_path / "installed", tmp_path / "home"
    home.mkdir()
    (home / "cache.py").write_text("MINE = 1\n")
    (home / "index.py").write_text("MINE = 3\n")
    (home / "store").mkdir()
    (home / "store" / "__init__.py").write_text("MINE = 2\n")
    pip("install", "--no-index", "--no-deps", "--target", str(target), str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(target)}
    commands = [
        [sys.executable, "-c", USE.format(target=str(target))],
        [sys.executable, str(target / "bin" / "stratalog"), "verify", str(home / "data")],
        [sys.executable, "-m", "stratalog", "topics", str(home / "data")],
    ]
    for command in commands:
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stdout + done.stderr
