"""`python -m tests.release COMMAND`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import __doc__ as commands
from . import stores
from .build import build
from .environments import CONSTRAINTS, ROOT, CommandFailed, Environment, interpreter, run

CORE = ("tests/store", "tests/cache", "tests/index", "tests/test_imports.py", "tests/test_face.py")
UV = "uv>=0.4"  # resolves for all platforms at once, and the lowest versions
HEAD = """\
# The versions with which the tests have passed, for all Pythons and platforms that the package supports.
# Made by `python -m tests.release lock`; used by `pip install -e '.[test]' -c tests/release/constraints.txt`.
"""


def lock(folder: Path) -> None:
    """Write the versions of all that the extra `test` needs, and what needs that."""
    tools = Environment(folder / "tools")
    tools.install(UV)
    extra = ("--extra", "test", "--universal", "--no-header", "--no-emit-package", "stratalog")
    CONSTRAINTS.write_text(HEAD + run(tools.bin / "uv", "pip", "compile", "-q", "pyproject.toml", *extra))
    print(f"{CONSTRAINTS.relative_to(ROOT)}: {CONSTRAINTS.read_text().count('==')} distributions")


def oldest(folder: Path, arguments: list[str]) -> None:
    """Run tests, those of the core if none are named, with the lowest version of each requirement that is to be had."""
    tools, old = Environment(folder / "tools"), Environment(folder / "oldest")
    tools.install(UV)
    lowest = ("--resolution", "lowest-direct", "--python", old.python)
    run(tools.bin / "uv", "pip", "install", "-q", *lowest, "-e", f"{ROOT}[test]")
    versions = old.installed()
    print(f"{interpreter()}, {', '.join(f'{name} {versions[name]}' for name in ('numpy', 'xxhash', 'pyroaring'))}")
    run(old.python, "-m", "pytest", *(arguments or CORE), show=True)


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command, and what is for pytest."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.release", description=commands, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("checks", "build", "lock", "oldest", "stores"))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for pytest, of `checks` and `oldest`")
    return parser.parse_args(words)


def main() -> int:
    """The command; 1 if something is wrong."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="stratalog-release-") as name:
        folder = Path(name)
        try:
            if given.command in ("checks", "build"):
                build(folder)
            if given.command == "checks":
                run(sys.executable, "-m", "pytest", *given.arguments, show=True)
            elif given.command == "lock":
                lock(folder)
            elif given.command == "oldest":
                oldest(folder, given.arguments)
            elif given.command == "stores":
                print(stores.write())
        except CommandFailed as failed:
            print(failed, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
