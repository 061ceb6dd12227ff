"""The long form of the crash tests: `python -m tests.store.delayed [seconds]`."""

import random
import sys
import time

from .crashes import CrashHistory

until, states = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 60), 0
while time.monotonic() < until:
    history = CrashHistory(random.SystemRandom().getrandbits(32))
    history.run(steps=80)
    states += len(history.moments)
    if wrong := history.check():
        sys.exit("\n".join(wrong))
print(f"{states} crashes, nothing wrong")
