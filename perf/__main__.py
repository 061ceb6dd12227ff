"""`python -m perf NAME`: the measurements; `stratalog bench NAME` if the package is installed."""

from stratalog.extras import need_console

need_console("python -m perf")
from stratalog.perf.commands.app import app  # noqa: E402  # needs the extra that was looked for above
from stratalog.perf.commands.end import run_app  # noqa: E402  # as above

run_app(app, "python -m perf")
