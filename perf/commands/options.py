"""The options of a command, made from the fields of its experiment."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..experiments.reported import Reported
from ..machine.folders import NoFolder, human_bytes, there
from ..workload.contest import parse_bytes

BYTES = "_bytes"


def writable(path: Path | None) -> Path | None:
    """The --json option's file; a usage error before the work if it cannot be written."""
    try:
        # To open a pipe and close it again would end it for its reader.
        if path is not None and str(path) != "-" and (path.is_file() or path.is_dir() or not path.exists()):
            new = not path.exists()
            path.open("a").close()
            if new:
                path.unlink()
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from error
    return path


def existing(path: Path | None) -> Path | None:
    """The --dir option's folder; a usage error if it does not exist."""
    try:
        return None if path is None else there(path)
    except NoFolder as error:
        raise typer.BadParameter(str(error)) from error


Where = Annotated[
    Path | None,
    typer.Option(
        "--dir", callback=existing, help="make the run's folder in this one, which exists (default: the current one)"
    ),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        callback=writable,
        metavar="[=FILE]",
        help="print JSON and nothing else; =FILE writes it to a file",
    ),
]
Short = Annotated[bool, typer.Option("--short", help="a tiny run that shows that everything works")]
COMMON: dict[str, tuple[Any, Any]] = {"where": (Where, None), "json": (Json, None), "short": (Short, False)}


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _is_size(field: dataclasses.Field[Any]) -> bool:
    return field.name.endswith(BYTES) and not field.metadata["option"]


def flag_of(field: dataclasses.Field[Any]) -> str:
    """The name of a field's option."""
    return f"--{(field.metadata['option'] or field.name.removesuffix(BYTES)).replace('_', '-')}"


def asked(experiment: type[Reported], given: dict[str, Any], command: str, where: Path | None, *, short: bool) -> str:
    """The command as the user typed it, for the line with the method. `command`: without its options."""
    words = [command]
    for field in dataclasses.fields(experiment):
        value, flag = given[field.name], flag_of(field)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif value is not None:
            words += [f"{flag} {shlex.quote(str(one))}" for one in (value if isinstance(value, list) else [value])]
    words += ["--short"] if short else []
    words += [] if where is None else [f"--dir {shlex.quote(str(where))}"]
    return " ".join(words)


def parameter(field: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
    """The command's parameter of an experiment's field. Its value is None if the caller gives none."""
    given, flag = field.metadata, flag_of(field)
    shown = human_bytes(field.default) if _is_size(field) and isinstance(field.default, int) else field.default
    text = given["help"] if field.default is None or kind is bool else f"{given['help']} (default {shown})"
    if kind is bool:
        option = typer.Option(f"{flag}/--no-{flag[2:]}", help=text)
    elif _is_size(field):
        option, kind = typer.Option(flag, help=text), str
    else:
        option = typer.Option(flag, help=text, min=given["least"])
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def parameters(experiment: type[Reported]) -> list[inspect.Parameter]:
    """All parameters of a command: the experiment's fields, then those of every command."""
    kinds = get_type_hints(experiment)
    own = [parameter(field, kinds[field.name]) for field in dataclasses.fields(experiment)]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in COMMON.items()
    ]
    return own + common


def made(experiment: type[Reported], given: dict[str, Any], *, short: bool) -> Reported:
    """The experiment with these options; a usage error if one of them cannot be used."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(experiment):
        value = given[field.name]
        if _is_size(field):
            value = _size(value)
        if value is None and short:
            value = field.metadata["short"]
        if value is not None:
            values[field.name] = value
    try:
        return experiment(**values)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
