"""Curves of a growth run, as a picture: a panel a chapter, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .figures import Figures

COLUMNS, PANEL_INCHES = 2, (7.0, 4.5)
LABELS = frozenset({"what", "growth"})
SUFFIXES = (".svg", ".png")
MISSING = "the picture needs matplotlib: pip install matplotlib"


class NoPicture(Exception):
    """A picture cannot be drawn; the sentence says what to do."""


def check_picture(path: Path) -> None:
    """Check before a long run that a picture can be written at its end. Raises NoPicture if not."""
    _pyplot()
    if path.suffix not in SUFFIXES or not path.absolute().parent.is_dir():
        raise NoPicture(
            f"{path} cannot be drawn: give a file that ends in {' or '.join(SUFFIXES)}, in a folder that is there"
        )


def write_curves(path: Path, chapters: Mapping[str, Sequence[Figures]]) -> None:
    """Draw a panel for each chapter: one line for each row, by the steps of its columns. Raises NoPicture."""
    pyplot = _pyplot()
    rows = -(-len(chapters) // COLUMNS)
    figure, axes = pyplot.subplots(
        rows, COLUMNS, squeeze=False, figsize=(PANEL_INCHES[0] * COLUMNS, PANEL_INCHES[1] * rows), layout="constrained"
    )
    for panel in axes.flat[len(chapters) :]:
        panel.set_visible(False)
    for panel, (title, lines) in zip(axes.flat, chapters.items(), strict=False):
        for line in lines:
            steps = [name for name in line if name not in LABELS and line[name] is not None]
            values = [float(line[name]) for name in steps]
            if all(value > 0 for value in values):
                panel.loglog([int(name.replace(",", "")) for name in steps], values, marker="o", label=line["what"])
        panel.set_title(title)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=6)
    figure.savefig(path)
    pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib  # noqa: PLC0415  # it is large, and most runs draw nothing
    except ImportError:
        raise NoPicture(MISSING) from None
    matplotlib.use("agg")
    from matplotlib import pyplot  # noqa: PLC0415  # as above, and after the choice of what draws

    return pyplot
