"""The end of a command: an exit code, and a sentence instead of a traceback."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from ...store import StoreError
from ..experiments.endpoint import NoEndpoint
from ..machine.checkouts import NoCheckout
from ..machine.folders import NoFolder, TooLittleSpace
from ..report.figures import messages_console
from ..report.record import NoReport
from ..report.tables import plain
from ..workload.checker import WrongResult
from ..workload.latencies import NoHistogram

WRONG, MISUSED, FAILED, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143


def run_app(app: typer.Typer, name: str) -> None:
    """Run the command line. A wrong result ends it with exit code 1; a folder or report that is not there with 2; a
    refusal of the store or the system with 3.

    SIGTERM ends it like Ctrl-C, so that folders are removed.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name=name)
    except WrongResult as error:
        _end(f"{type(error).__name__}: {error}", WRONG)
    except (NoFolder, NoReport) as error:
        _end(str(error), MISUSED)
    except (StoreError, TooLittleSpace, NoCheckout, NoEndpoint, NoHistogram) as error:
        _end(f"{type(error).__name__}: {error}", FAILED)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"the system refused: {error.strerror or error}{where}", FAILED)
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        _end("interrupted", INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """End the command once: a second SIGTERM would interrupt the removal of the folders."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(TERMINATED)


def _end(sentence: str, code: int) -> None:
    messages_console().print(plain(sentence), style="red", highlight=False, soft_wrap=True)
    sys.exit(code)
