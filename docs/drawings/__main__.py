"""Write all drawings beside this file."""

from __future__ import annotations

from pathlib import Path

from . import DRAWINGS

for name, draw in DRAWINGS.items():
    Path(__file__).with_name(f"{name}.svg").write_text(draw())
