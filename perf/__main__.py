"""`python -m perf NAME`: the measurements."""

from .commands.app import app
from .commands.end import run_app

run_app(app, "python -m perf")
