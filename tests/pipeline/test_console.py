"""`stratalog spark NAME`: lines, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.pipeline import session
from tests.store.helpers import flip_bit, frames_of, segment_path

from .stores import make_store

pytestmark = pytest.mark.usefixtures("spark")  # the commands borrow it


def test_verify_has_a_verdict_in_its_last_line_and_its_exit_code(tmp_path: Path) -> None:
    make_store(tmp_path / "store", 1, 200)
    done = CliRunner().invoke(app, ["spark", "verify", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "200 messages" in done.output and done.output.splitlines()[-1] == "unharmed"
    victim = segment_path(tmp_path / "store", 1)
    flip_bit(victim, next(one.payload_start for one in frames_of(victim) if one.header.payload_bytes))
    done = CliRunner().invoke(app, ["spark", "verify", str(tmp_path), "--json", "-"])
    assert done.exit_code == 1
    figures = json.loads(done.stdout)
    assert not figures["ok"] and figures["damages"][0]["file"] == str(victim)


def test_export_and_profile_say_what_they_did(tmp_path: Path) -> None:
    make_store(tmp_path / "store", 2, 300)
    to, page = tmp_path / "out", tmp_path / "page.html"
    options = ["--to", str(to), "--format", "json", "--columns", "offset,topic"]
    done = CliRunner().invoke(app, ["spark", "export", str(tmp_path / "store"), *options])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("300 messages in ")
    assert {"offset", "topic"} == json.loads(next(to.glob("*.json")).read_text().splitlines()[0]).keys()
    done = CliRunner().invoke(
        app, ["spark", "profile", str(tmp_path / "store"), "--html", str(page), "--topic", "orders,bills"]
    )
    assert done.exit_code == 0, done.output
    assert sorted(line.split(":")[0] for line in done.output.splitlines()) == ["bills", "orders"]
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["verify", "nowhere"], 4, "nowhere does not exist"),
        (["export", "store", "--to", "store"], 2, "is there already"),
        (["export", "store", "--to", "out", "--format", "xml"], 2, "parquet, json, csv"),
        (["profile", "store", "--since", "yesterday"], 2, "'yesterday' is no time: give now"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    make_store(tmp_path / "store", 3, 5)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["spark", *arguments])
    assert (done.exit_code, "Traceback" in done.output) == (code, False), done.output
    assert says in done.stderr


def test_without_pyspark_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["spark", "verify", str(tmp_path)])
    assert done.exit_code == 3 and "pip install '.[spark]'" in done.stderr


def test_session_of_the_caller_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path, 4, 5)
    assert CliRunner().invoke(app, ["spark", "verify", str(tmp_path)]).exit_code == 0
    assert spark.range(3).count() == 3
