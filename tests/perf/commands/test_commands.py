"""The command line: options from the fields of an experiment, short forms, and the last lines of the output."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from stratalog.perf.commands.app import EXPERIMENTS, app, command_of
from stratalog.perf.commands.options import asked, made
from stratalog.perf.experiments.experiment import repeats, setting
from stratalog.perf.experiments.reported import Reported, Study
from stratalog.perf.report.progress import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried(Reported):
    """Tells its options."""

    NAME: ClassVar[str] = "tried"
    TITLE: ClassVar[str] = "Tried"
    METHOD: ClassVar[str] = "not at all"

    size_bytes: int = setting(1 << 20, "of something", short=1 << 10)
    message_bytes: int = setting(100, "of a message", least=16, option="size-each")
    threads: int = setting(40, "of them", short=4, least=1)
    reference: bool = setting(True, "with it")
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """Nothing."""
        return 0

    def study(self, base: Path, run: Run) -> Study:
        """The options, in a line."""
        run.checked(12)
        options = {name: value for name, value in dataclasses.asdict(self).items() if name != "report"}
        return Study(summary=(" ".join(f"{name}={value}" for name, value in options.items()),), chapters=())


def output(tmp_path: Path, *arguments: str) -> list[str]:
    """The lines that the command prints."""
    tried = typer.Typer()
    tried.command("tried")(command_of(Tried))
    done = CliRunner().invoke(tried, [*arguments, "--dir", str(tmp_path)], env={"COLUMNS": "200"})
    return done.output.splitlines() if done.exit_code == 0 else [f"exit code {done.exit_code}"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "seed=2021 size_bytes=1048576 message_bytes=100 threads=40 reference=True repeat=3"),
        (["--short"], "seed=2021 size_bytes=1024 message_bytes=100 threads=4 reference=True repeat=1"),
        (["--short", "--size", "3KiB", "--threads", "7", "--no-reference", "--size-each", "20", "--seed", "5"],
         "seed=5 size_bytes=3072 message_bytes=20 threads=7 reference=False repeat=1"),
    ],
)  # fmt: skip
def test_option_is_the_given_one_else_the_short_one_else_the_default(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    assert output(tmp_path, *arguments)[0] == expected


@pytest.mark.parametrize(
    "arguments", [["--size", "much"], ["--threads", "0"], ["--size-each", "15"], ["--seed", "-1"], ["--repeat", "0"]]
)
def test_value_that_cannot_be_used_is_a_usage_error(tmp_path: Path, arguments: list[str]) -> None:
    assert output(tmp_path, *arguments) == ["exit code 2"]


def test_last_lines_say_how_it_was_measured_and_what_was_compared(tmp_path: Path) -> None:
    lines = output(tmp_path, "--short", "--threads", "7")
    said = " ".join(" ".join(lines[1:-1]).split())
    begin = f"--threads 7 --short --dir {tmp_path}`: one round; not at all; forced writes by pwritev"
    assert "measured by `" in said and begin in said  # before it, on a busy machine, how busy others were
    assert "CPython" in said
    assert lines[-1] == "12 messages read and compared with what was written: no difference"
    assert "medians of 3 rounds by turns" in " ".join(" ".join(output(tmp_path)[1:]).split())


def test_command_is_told_as_it_was_typed() -> None:
    given: dict[str, Any] = {field.name: None for field in dataclasses.fields(Tried)}
    assert asked(Tried, given, "python -m perf tried", None, short=False) == "python -m perf tried"
    given |= {"message_bytes": 200, "threads": 10}
    assert asked(Tried, given, "stratalog bench tried", Path("/a disk"), short=True) == (
        "stratalog bench tried --size-each 200 --threads 10 --short --dir '/a disk'"
    )


@pytest.mark.parametrize("words", [["python -m perf"], ["stratalog", "bench"]], ids=["perf", "stratalog"])
def test_method_names_the_command_that_was_typed(words: list[str], tmp_path: Path) -> None:
    groups = [typer.Typer(callback=lambda: None) for _ in words]
    for outer, inner, name in zip(groups, groups[1:], words[1:], strict=False):
        outer.add_typer(inner, name=name)
    groups[-1].command("tried")(command_of(Tried))
    typed = [*words[1:], "tried", "--dir", str(tmp_path)]
    done = CliRunner().invoke(groups[0], typed, prog_name=words[0])
    assert f"measured by `{' '.join(words)} tried --dir {tmp_path}`" in " ".join(done.output.split())


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.NAME)
def test_every_command_has_a_smaller_short_form_and_tells_its_options(experiment: type[Reported]) -> None:
    given = {field.name: None for field in dataclasses.fields(experiment)}
    short, whole = (made(experiment, given, short=short) for short in (True, False))
    assert short != whole and short.need_bytes() <= whole.need_bytes()
    shown = CliRunner().invoke(app, [experiment.NAME, "--help"], env={"COLUMNS": "200"}).output
    for field in dataclasses.fields(experiment):
        assert field.metadata["help"].split(" (")[0][:30] in shown
