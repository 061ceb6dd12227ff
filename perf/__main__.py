"""`python -m perf NAME`: the measurements."""

from perf.bench import app
from perf.options import run_app

run_app(app, "python -m perf")
