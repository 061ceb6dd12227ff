"""The commands that run a random test in rounds, each of a seed of its own: the long forms of crash tests."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from .seeds import draw_seed


class PartialRound(Protocol):
    """A round of which only a share of the states is looked at."""

    def __call__(self, seed: int, *, share: float) -> int:
        """Returns how many; raises AssertionError for a wrong one."""


def run_rounds(module: str, about: str | None, run_round: Callable[[int], int], verdict: str) -> int:
    """`python -m MODULE [--seconds N | --states N | --seed N]`; returns the exit code.

    Args:
        module: the package that is run, for the usage.
        about: what it does, for the usage.
        run_round: a round of a seed. Returns how many states it has tried; raises AssertionError for a wrong one.
        verdict: what it means that no round has raised.
    """
    return _run(_parser(module, about).parse_args(), run_round, verdict)


def run_partial_rounds(module: str, about: str | None, run_round: PartialRound, verdict: str, share: float) -> int:
    """The same with an option `--share`, whose default is given."""
    parser = _parser(module, about)
    parser.add_argument("--share", type=float, default=share, help="of a round's states, how many are looked at")
    given = parser.parse_args()
    return _run(given, partial(run_round, share=given.share), verdict)


def _parser(module: str, about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--seconds", type=float, default=60.0, help="begin rounds for so long")
    ends.add_argument("--states", type=int, help="begin rounds until so many states were tried")
    ends.add_argument("--seed", type=int, help="run this round alone")
    return parser


def _run(given: argparse.Namespace, run_round: Callable[[int], int], verdict: str) -> int:
    if given.seed is not None:
        print(run_round(given.seed), "states")
        return 0
    began, states, rounds = time.monotonic(), 0, 0
    while states < given.states if given.states is not None else time.monotonic() - began < given.seconds:
        states += run_round(draw_seed())
        rounds += 1
    spent = time.monotonic() - began
    print(f"{states:,} states of {rounds:,} rounds in {spent:,.0f} s, {states / spent:,.1f}/s: {verdict}")
    return 0
