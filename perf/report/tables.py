"""Tables that fit the console: names of columns fold, columns go to a second table, and no figure is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

EDGES = 3  # a column's padding and its line


def figure(value: object) -> str:
    """A cell's text: thousands grouped, three or four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return plain(str(value))
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def plain(text: str) -> str:
    """Names as they were given; characters that steer the terminal or cannot be encoded become escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@dataclass(frozen=True)
class Sheet:
    """Rows under a title, one column for each key. The first `labels` columns name the row: if the console is too
    narrow for all columns, they are repeated in each of several tables."""

    title: str
    rows: Sequence[Mapping[str, object]]
    labels: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        names = list(dict.fromkeys(key for row in self.rows for key in row))
        if self._width(names, fold=False) <= width:
            yield self._table(names, fold=False, title=self.title)
            return
        for index, part in enumerate(self._parts(names, width)):
            yield self._table(part, fold=True, title="" if index else self.title)

    def _parts(self, names: list[str], width: int) -> Iterator[list[str]]:
        """Parts of the columns that fit, each with the labels."""
        labels = names[: self.labels]
        part = list(labels)
        for name in names[self.labels :]:
            if len(part) > len(labels) and self._width([*part, name], fold=True) > width:
                yield part
                part = list(labels)
            part.append(name)
        yield part

    def _width(self, names: Sequence[str], *, fold: bool) -> int:
        return 1 + sum(EDGES + self._column_width(name, fold=fold) for name in names)

    def _column_width(self, name: str, *, fold: bool) -> int:
        lines = self._heading(name, fold=fold).split("\n")
        return max(*map(cell_len, lines), self._body_width(name))

    def _body_width(self, name: str) -> int:
        return max(cell_len(figure(row.get(name))) for row in self.rows)

    def _heading(self, name: str, *, fold: bool) -> str:
        """The column's name; with `fold` in lines that are no wider than the column's cells, if words allow it."""
        if not fold:
            return name
        pieces = re.findall(r"[^_ ]+[_ ]?", name)
        width = max(self._body_width(name), *map(cell_len, pieces))
        lines = [""]
        for piece in pieces:
            if cell_len(lines[-1] + piece) > width:
                lines.append("")
            lines[-1] += piece
        return "\n".join(line.strip() for line in lines)

    def _table(self, names: Sequence[str], *, fold: bool, title: str) -> Table:
        made = Table(title=Text(plain(title), style="italic") if title else None, title_justify="left")
        for name in names:
            values = [row.get(name) for row in self.rows]
            text = any(isinstance(value, str) for value in values)
            figures = [cell_len(figure(value)) for value in values if not isinstance(value, str)]
            made.add_column(
                Text(self._heading(name, fold=fold)),
                justify="left" if text else "right",
                no_wrap=not text,
                overflow="fold",
                min_width=max(figures, default=1),
            )
        for row in self.rows:
            made.add_row(*(Text(figure(row.get(name))) for name in names))
        return made
