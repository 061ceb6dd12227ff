"""The files of a report: NAME.json, NAME.html and NAME.md in one folder; and a report read back."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .markdown import markdown
from .page import page
from .record import NoReport, Report, report_of


def write_report(folder: Path, report: Report) -> list[Path]:
    """Write the three files; each is whole or is not changed. Returns them. Raises OSError."""
    texts = {
        "json": json.dumps(report.as_dict(), indent=2, allow_nan=False) + "\n",
        "html": page(report),
        "md": markdown(report),
    }
    return [_whole(folder / f"{report.name}.{kind}", text) for kind, text in texts.items()]


def read_report(path: Path) -> Report:
    """The report of a JSON file. Raises NoReport, which names the file."""
    try:
        read = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # no text, no JSON, or a number of thousands of digits
        raise NoReport(f"{path} is no report: it is no JSON: {error}") from None
    except OSError as error:
        raise NoReport(f"{path} cannot be read: {error.strerror or error}") from None
    return report_of(read, str(path))


def _whole(path: Path, text: str) -> Path:
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return path
