"""`python -m tests.fuzz NAME [options]`: each module of this package with a `main` is a fuzzer."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

FUZZERS = sorted(
    module.name
    for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    if module.name in ("damage", "endpoint", "signals")
)


def main() -> int:
    """Run the fuzzer that the first argument names with the other ones; its exit code (0: nothing found)."""
    name, *options = sys.argv[1:] or [""]
    if name not in FUZZERS:
        print(f"usage: python -m tests.fuzz {'|'.join(FUZZERS)} [options]", file=sys.stderr)
        return 2
    return int(importlib.import_module(f"{__package__}.{name}").main(options))


if __name__ == "__main__":
    sys.exit(main())
