"""`python -m perf NAME`: the measurements; `stratalog bench NAME` if the package is installed."""

from stratalog.perf.commands.app import app
from stratalog.perf.commands.end import run_app

run_app(app, "python -m perf")
