"""What importing the package loads, and that its names are there all the same. Modules are counted, never seconds."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog import extras, store

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"numpy", "xxhash", "pyroaring"}  # distributions that `pip install .` brings, at most six
OTHERS = {"rich", "typer", "click", "psutil", "pyspark", "pandas", "pyarrow", "grpc", "google", "hdrh", "opentelemetry"}
MOST_AT_THE_START = 12  # modules that `import stratalog` loads beyond those of a bare interpreter


def python(program: str, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def loaded_by(statements: str) -> list[str]:
    """The modules that statements load in an interpreter of their own."""
    program = f"import sys\nbefore = set(sys.modules)\n{statements}\nnew = sorted(set(sys.modules) - before)\n"
    return list(json.loads(python(program + "import json; print(json.dumps(new))").stdout))


def test_importing_the_package_loads_a_handful_of_modules_and_not_numpy() -> None:
    modules = loaded_by("import stratalog")
    assert {one for one in modules if one.startswith("stratalog")} == {"stratalog", "stratalog.on_demand"}
    assert len(modules) <= MOST_AT_THE_START, modules


def test_an_error_of_the_store_is_imported_without_the_store() -> None:
    modules = loaded_by("from stratalog import StoreError, StoreFull")
    assert {"stratalog.store", "stratalog.store.errors"} <= set(modules)
    assert {"numpy", "stratalog.store.api", "stratalog.cache", "stratalog.index"}.isdisjoint(modules)


def test_a_store_that_appends_and_reads_has_loaded_nothing_of_the_extras(tmp_path: Path) -> None:
    statements = f"""
from stratalog import *
from stratalog.store import *
from stratalog.index import *
import stratalog.bulk, stratalog.plans, stratalog.testing, stratalog.tools
with MessageStore.open({str(tmp_path)!r}) as opened, opened.subscribe("t", "s") as sub:
    opened.append("t", 0, b"x")
    sub.ack_batch(sub.receive())
"""
    modules = loaded_by(statements)
    assert OTHERS & {one.partition(".")[0] for one in modules} == set()
    assert {"stratalog.perf", "stratalog.console", "stratalog.pipeline", "stratalog.endpoint"}.isdisjoint(modules)


def imports_for_types(package: Any) -> dict[str, str]:
    """Name -> place, as the imports of a package under `TYPE_CHECKING` say it."""
    found: dict[str, str] = {}
    for block in ast.parse(Path(package.__file__).read_text()).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                assert isinstance(line, ast.ImportFrom) and line.level == 1
                for one in line.names:
                    found[one.asname or one.name] = f"{line.module}:{one.name}" if one.asname else f"{line.module}"
    return found


@pytest.mark.parametrize("package", [stratalog, store], ids=lambda package: package.__name__)
def test_places_say_what_type_checkers_are_told(package: Any) -> None:
    places = {name: place for name, place in package.PLACES.items() if name != place}
    assert places == imports_for_types(package)
    assert sorted(places) == sorted(package.__all__)


@pytest.mark.parametrize("package", [stratalog, store], ids=lambda package: package.__name__)
def test_dir_and_a_star_import_have_all_names(package: Any) -> None:
    """In an interpreter of its own, where no name was used before."""
    program = f"import {package.__name__} as p, json; shown = dir(p); ns = {{}}\n"
    program += f"exec('from {package.__name__} import *', ns); print(json.dumps([shown, sorted(ns)]))"
    shown, given = json.loads(python(program).stdout)
    assert set(package.__all__) <= set(shown) and shown == sorted(shown)
    assert set(given) == {*package.__all__, "__builtins__"}


def test_parts_are_there_after_an_import_of_the_package_alone() -> None:
    program = "import stratalog as s; print(s.store.Message, s.index.TimingWheel, s.cache.Tier, s.remote.connect)"
    assert python(program).stdout.count("stratalog.") == 3
    assert "has no attribute 'perf'" in python("import stratalog; stratalog.perf", status=1).stderr


def test_a_message_that_was_pickled_needs_no_import_of_its_reader(tmp_path: Path) -> None:
    write = "import sys, pickle; from stratalog import Message, StoreConfig, StoreFull\n"
    write += "x = [Message('t', 0, 1, b'x', 2, None, b'k', {}), StoreConfig(lanes=2), StoreFull('full')]\n"
    python(write + "open(sys.argv[1], 'wb').write(pickle.dumps(x))", str(tmp_path / "x"))
    read = "import sys, pickle; print(pickle.load(open(sys.argv[1], 'rb')))"
    assert re.fullmatch(r"\[Message\(.*\), StoreConfig\(.*lanes=2.*\), StoreFull\('full'\)\]\n",
                        python(read, str(tmp_path / "x")).stdout)  # fmt: skip


def test_threads_that_use_names_first_at_the_same_time_get_the_same_ones() -> None:
    program = """
import sys, threading
sys.setswitchinterval(1e-5)
import stratalog
gate, found = threading.Barrier(8), []
def use(name):
    gate.wait()
    found.append((name, getattr(stratalog, name)))
names = ["MessageStore", "StoreReader", "Ticket", "Transaction"] * 2
threads = [threading.Thread(target=use, args=(name,)) for name in names]
[one.start() for one in threads], [one.join() for one in threads]
assert len(found) == 8 and len({id(one) for _, one in found}) == 4
"""
    python(program)


WITHOUT = "import sys; sys.modules[{name!r}] = None; sys.argv = ['stratalog', *sys.argv[1:]]\n"
RUNS = {
    "stratalog": "from stratalog.console import main; main()",
    "python -m perf": "sys.argv[0] = '-m'; import runpy; runpy.run_module('perf', run_name='__main__')",
}


@pytest.mark.parametrize("missing", extras.CONSOLE)
@pytest.mark.parametrize("command", RUNS)
def test_a_command_without_the_extra_says_in_one_sentence_what_to_install(missing: str, command: str) -> None:
    done = python(WITHOUT.format(name=missing) + RUNS[command], "--help", status=2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"{command} needs the extra `console` (without {missing}): pip install ")


def test_another_module_that_is_missing_is_an_error_as_ever() -> None:
    done = python(WITHOUT.format(name="stratalog.perf.commands.end") + RUNS["stratalog"], status=1)
    assert "ModuleNotFoundError" in done.stderr and "pip install" not in done.stderr


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[; ]", one)[0] for one in requirements}


def test_the_core_needs_three_distributions_and_the_sentence_names_those_of_the_console() -> None:
    assert names(PROJECT["dependencies"]) == CORE
    optional = PROJECT["optional-dependencies"]
    assert names(optional["console"]) == set(extras.CONSOLE)
    assert all("stratalog[console]" in optional[name] for name in ("bench", "spark", "rocketmq", "test"))
    installed = importlib.metadata.requires("stratalog") or []
    assert names([one for one in installed if "extra ==" not in one]) == CORE


def test_the_version_is_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert importlib.metadata.version("stratalog") == stratalog.__version__, (
        "install the checkout again: pip install -e ."
    )
