from __future__ import annotations

import sys

import stratalog.store
from stratalog.perf.machine.checkouts import HERE, PACKAGE, load_store


def test_a_checkout_is_loaded_beside_the_running_code_and_does_not_replace_it() -> None:
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
    loaded = [load_store(HERE), load_store(HERE)]
    kinds = {stratalog.store.MessageStore, *(one.MessageStore for one in loaded)}
    assert len(kinds) == 3 and all(one.__file__.startswith(str(HERE)) for one in loaded)
    assert {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE} == before
