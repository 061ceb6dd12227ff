"""Bugs of the examples: their tests compare what a command prints with its page."""

from __future__ import annotations

from .plant import Bug

COMMANDS = "tests/examples/test_commands.py"

EXAMPLES: dict[str, Bug] = {
    "examples: a post that comes again is a second job": Bug(
        "examples/web_service/service.py",
        ", key=name.encode(), message_id=name)",
        ", key=name.encode())",
        (f"{COMMANDS}::test_an_example_prints_what_its_page_says[web_service]",),
    ),
    "examples: an order that comes again is taken again": Bug(
        "examples/outbox/shop.py",
        "        if name in self.orders:\n            return\n",
        "",
        (f"{COMMANDS}::test_an_example_prints_what_its_page_says[outbox]",),
    ),
    "examples: the bank's tests forget what was surely paid": Bug(
        "examples/power_cuts/tests/test_bank.py",
        "        assert found in (cut.surely, cut.maybe)\n",
        "",
        (f"{COMMANDS}::test_the_tests_of_the_bank_find_no_fault_in_it_and_both_planted_bugs",),
    ),
}
