"""The files of a release agree with each other: requirements, the lock, the changelog, what contributors are told."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import stratalog

from .environments import CONSTRAINTS, ROOT, CommandFailed, run

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXTS = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
OF_A_CHANGE = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
PIN = re.compile(r"^([a-z0-9-]+)==([^ \n]+)( ; .+)?$", re.MULTILINE)


def requirements(*extras: str) -> list[Requirement]:
    """What the core and some extras need, and the extras that they name in turn."""
    found = [Requirement(one) for one in PROJECT["dependencies"]]
    for extra in extras:
        for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
            found += requirements(*one.extras) if one.name == "stratalog" else [one]
    return found


def test_each_requirement_has_a_lower_bound() -> None:
    wanted = requirements(*PROJECT["optional-dependencies"])
    assert len(wanted) > 20
    assert [str(one) for one in wanted if not any(part.operator == ">=" for part in one.specifier)] == []


def test_the_lock_has_a_version_of_each_requirement_that_the_tests_need_and_that_it_allows() -> None:
    """Otherwise `python -m tests.release lock` has to be run again."""
    pins = {name: version for name, version, _ in PIN.findall(CONSTRAINTS.read_text())}
    for one in requirements("test"):
        name = one.name.lower().replace("_", "-")
        assert one.specifier.contains(pins[name], prereleases=True), one
    assert "stratalog" not in pins and len(pins) > len(requirements("test"))


def test_the_lock_names_no_place_that_packages_come_from() -> None:
    assert re.search(r"://|--(extra-)?index|--find-links|@ ", CONSTRAINTS.read_text()) is None


def faults_of_the_changelog(text: str, version: str) -> list[str]:
    """Where a changelog is not as Keep a Changelog has it: the newest first, with the current version."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    released = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", one) for one in headings[1:]]
    numbers = [tuple(map(int, one.groups())) for one in released if one]
    faults = [] if headings[:1] == ["[Unreleased]"] else ["the first part is not [Unreleased]"]
    faults += [f"no release: {one}" for one, found in zip(headings[1:], released, strict=True) if not found]
    faults += [] if numbers == sorted(set(numbers), reverse=True) else ["not from new to old"]
    faults += [f"no kind: {one}" for one in re.findall(r"^### (.+)$", text, re.MULTILINE) if one not in OF_A_CHANGE]
    newest = ".".join(map(str, numbers[0])) if numbers else None
    unreleased = text.partition("## [Unreleased]")[2].partition("\n## ")[0]
    if version != newest and f"release will be {version}" not in unreleased:
        faults.append(f"{version} is neither the newest release nor announced")
    return faults


def test_the_changelog_is_kept() -> None:
    assert faults_of_the_changelog((ROOT / "CHANGELOG.md").read_text(), stratalog.__version__) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "## [0.1.0] - 2026-12-01\n",
        "## [Unreleased]\n## [0.1.0]\n",
        "## [Unreleased]\n## [0.1.0] - 2026-12-01\n## [0.2.0] - 2026-12-02\n",
        "## [Unreleased]\n### News\n## [0.1.0] - 2026-12-01\n",
        "## [Unreleased]\n## [0.0.9] - 2026-12-01\n",
    ],
)
def test_a_changelog_that_is_not_kept_is_noticed(wrong: str) -> None:
    assert faults_of_the_changelog(wrong, "0.1.0") != []
    assert faults_of_the_changelog("## [Unreleased]\n### Fixed\n## [0.1.0] - 2026-12-01\n", "0.1.0") == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_what_contributors_are_told_of_is_there(text: Path) -> None:
    told = text.read_text()
    files = re.findall(r"\b((?:tests|docs|store|stratalog)/[\w/.]+\.\w+)", told)
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", told)
    assert [one for one in {*files, *links} if "VERSION" not in one and not (ROOT / one).exists()] == []
    anchors = re.findall(r"CONTRIBUTING\.md#([\w-]+)", told)
    headings = re.findall(r"^## (.+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert set(anchors) <= {one.lower().replace(" ", "-") for one in headings}


def test_each_command_of_a_release_is_told_and_there() -> None:
    told = set(re.findall(r"tests\.release (\w+)", (ROOT / "CONTRIBUTING.md").read_text()))
    shown = subprocess.run(
        [sys.executable, "-m", "tests.release", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "{" + ",".join(["checks", "build", "lock", "oldest", "stores"]) + "}" in shown
    assert told == {"checks", "build", "lock", "oldest", "stores"}


def test_arguments_of_pytest_are_handed_on() -> None:
    from .__main__ import arguments  # noqa: PLC0415  # of the command

    given = arguments(["checks", "--basetemp=/x", "-k", "trim", "tests/store"])
    assert (given.command, given.arguments) == ("checks", ["--basetemp=/x", "-k", "trim", "tests/store"])


def test_a_command_that_fails_is_told_with_its_output(tmp_path: Path) -> None:
    assert run(sys.executable, "-c", "print('fine')", within=tmp_path) == "fine\n"
    with pytest.raises(CommandFailed, match=r"(?s)ended with 3.*why"):
        run(sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)")
