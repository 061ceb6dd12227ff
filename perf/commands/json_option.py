"""The option --json, in the same way for all commands: `--json` prints JSON, `--json=FILE` writes it to a file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from typer.core import TyperGroup

JSON = "--json"


def with_json(arguments: list[str], *, takes_next: bool) -> list[str]:
    """The arguments with `--json=-` for a `--json` alone.

    With `takes_next` an argument after it that is no option is its file, as it was before `--json` could stand alone.
    """
    found: list[str] = []
    for at, one in enumerate(arguments):
        if one == "--":
            return found + arguments[at:]
        following = arguments[at + 1 : at + 2]
        has_file = takes_next and following and (following == ["-"] or not following[0].startswith("-"))
        found.append(f"{JSON}=-" if one == JSON and not has_file else one)
    return found


class JsonGroup(TyperGroup):
    """A command with commands. Those in `without_file` never take the next argument for the file of `--json`."""

    without_file: Collection[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        command = next((one for one in args if not one.startswith("-")), None)
        return super().parse_args(ctx, with_json(args, takes_next=command not in self.without_file))
