"""A sheet of boxes, words and arrows, as SVG text. The same calls give the same bytes."""

from __future__ import annotations

from xml.sax.saxutils import escape

PAPER, INK, SOFT, LINE = "#fbfaf7", "#1d2b33", "#5c6b73", "#9aa7ad"
TEAL, TEAL_SOFT, AMBER_SOFT, RED, GREY_SOFT = "#00796b", "#cfe8e4", "#fbe3b3", "#c0392b", "#e7eaec"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Sheet:
    """A drawing of so many units; it has a paper of its own, so that it can be read on a dark page too."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str = PAPER, *, edge: str = LINE) -> None:
        """A rectangle."""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
            f'fill="{fill}" stroke="{edge}"/>'
        )

    def words(
        self, x: float, y: float, text: str, *, size: int = 14, fill: str = INK, at: str = "start", bold: bool = False
    ) -> None:
        """A line of text; `at` says which end of it (start, middle, end) is at x."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{at}"{weight}>'
            f"{escape(text)}</text>"
        )

    def line(
        self, points: list[tuple[float, float]], *, stroke: str = SOFT, width: float = 1.5, dashed: bool = False
    ) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width}"{dash}/>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float], *, stroke: str = SOFT) -> None:
        """A line with a head at its end; it is level or upright."""
        self.line([start, end], stroke=stroke)
        (x0, y0), (x, y) = start, end
        dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
        left = x - 7 * dx - 4 * dy, y - 7 * dy - 4 * dx
        right = x - 7 * dx + 4 * dy, y - 7 * dy + 4 * dx
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in (left, (x, y), right))
        self._parts.append(f'<polygon points="{points}" fill="{stroke}"/>')

    def dot(self, x: float, y: float, fill: str = TEAL, radius: float = 5) -> None:
        """A filled circle."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}"/>')

    def text(self) -> str:
        """The file."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="{FONT}">'
        )
        paper = f'<rect width="{width}" height="{height}" rx="6" fill="{PAPER}"/>'
        return "\n".join([head, f"<title>{escape(self._title)}</title>", paper, *self._parts, "</svg>", ""])
