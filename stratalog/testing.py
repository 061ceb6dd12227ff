"""For tests of programs that use the store: a simulated disk, a clock, a checker of histories, more settings."""

from .store.testing import *  # noqa: F403  # the names of its `__all__`, which are listed in one place
from .store.testing import __all__ as __all__  # noqa: PLC0414  # said again, so that type checkers know it
