"""A wheel and an sdist: built, checked by the tools of the package index, installed and used in a new environment.

The wheel is built from the sdist, so an sdist that lacks a file is noticed. Nothing of the checkout is changed:
setuptools builds in a copy.
"""

from __future__ import annotations

import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from ..checkout import PARTS, copy_of_the_checkout
from .environments import ROOT, CommandFailed, Environment, run

TOOLS = ("build>=1.2", "twine>=6", "check-wheel-contents>=0.6", "setuptools>=77")
MOST_DISTRIBUTIONS = 6  # that `pip install .` brings, beyond the package itself
USE = """
import sys, tempfile
from stratalog import MessageStore, __version__
with tempfile.TemporaryDirectory() as folder:
    with MessageStore.open(folder) as store:
        assert store.append("orders", 0, b"x") == 0
    with MessageStore.open(folder) as store:
        assert store.get_range("orders", 0, 0, 2) == {0: b"x"}
print(__version__)
"""


def build(folder: Path, say: Callable[[str], None] = print) -> list[Path]:
    """Build and check both files in `folder`, which is there and empty; their paths. Raises CommandFailed."""
    began = time.monotonic()
    tools = Environment(folder / "tools")
    tools.install(*TOOLS)
    made = folder / "made"
    with copy_of_the_checkout(folder / "sources") as sources:
        run(tools.python, "-m", "build", "--no-isolation", "--outdir", made, sources)
    files = sorted(made.iterdir())
    run(tools.python, "-m", "twine", "check", "--strict", *files)
    [wheel] = made.glob("*.whl")
    [sdist] = made.glob("*.tar.gz")
    run(tools.bin / "check-wheel-contents", "--toplevel", "stratalog,pytest_stratalog.py", wheel)
    lacking = sources_of_the_package() - set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    lacking |= {"LICENSE", "README.md", "pyproject.toml", *sources_of_the_package()} - names
    if lacking:
        raise CommandFailed(f"not in the wheel or the sdist: {', '.join(sorted(lacking)[:5])}")
    brought = try_wheel(folder / "clean", wheel)
    say(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, {sdist.name}: {sdist.stat().st_size >> 10} KiB; "
        f"installing brings {', '.join(brought)}; {time.monotonic() - began:.0f} s")  # fmt: skip
    return files


def sources_of_the_package() -> set[str]:
    """The names that each file has inside of the package."""
    found = {f"stratalog/{path.relative_to(ROOT)}" for part in PARTS for path in (ROOT / part).rglob("*.py")}
    own = [path for path in (ROOT / "stratalog").rglob("*.py") if not any(p.is_symlink() for p in path.parents)]
    return found | {str(path.relative_to(ROOT)) for path in own} | {"stratalog/py.typed", "pytest_stratalog.py"}


def try_wheel(folder: Path, wheel: Path) -> list[str]:
    """Install the wheel alone, use it, and ask its command; the distributions that came with it."""
    clean = Environment(folder)
    clean.install(wheel)
    brought = clean.installed()
    version = brought.pop("stratalog")
    if len(brought) > MOST_DISTRIBUTIONS:
        raise CommandFailed(f"installing the package brings {len(brought)} distributions: {sorted(brought)}")
    if run(clean.python, "-c", USE, within=folder).strip() != version:
        raise CommandFailed(f"the installed package says another version than {version}")
    try:
        run(clean.bin / "stratalog", "topics", folder, within=folder)
    except CommandFailed as without:
        if "ended with 2\nstratalog needs the extra `console`" not in str(without):
            raise
    else:
        raise CommandFailed("the command works without its extra: it should say that it does not")
    return sorted(brought)
