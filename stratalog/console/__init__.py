"""The console command `stratalog`.

the entry point     this module, which needs no extra
the commands        app (those that look), changes and settled (those that write), spark, subscribed, serve
watching            top, frames, top_screen, top_page and its top.html, web
what goes in        appended, files, rows, times
what comes out      messages, printed, inspected, files
how they end        ends
"""

from ..extras import need_console


def main() -> None:
    """Entry point of the console command."""
    need_console("stratalog")
    from ..perf.commands.end import run_app  # noqa: PLC0415  # of the extra, as the next one
    from .app import app  # noqa: PLC0415

    run_app(app, "stratalog")
