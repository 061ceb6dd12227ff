"""The back-off of a subscription: how long a message rests that failed, by how often it was given out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from ..errors import InvalidMessage, shown
from ..format.arrays import Int64s

Backoff: TypeAlias = "Sequence[int] | Mapping[str, float]"
MOST_DELAYS: Final = 1000
MOST_DELAY_MS: Final = 1 << 40
_NAMES: Final = ("first_ms", "factor", "most_ms")
_FORMS: Final = (
    f"backoff_ms is a list of up to {MOST_DELAYS} delays in ms, as [1000, 5000], or "
    '{"first_ms": 1000, "factor": 2, "most_ms": 60000}; each delay is an int from 0 to ' + str(MOST_DELAY_MS)
)


def check_backoff(given: object) -> tuple[int, ...] | None:
    """The delays (n,) of a user's policy, the last of which repeats; None for an empty list. Raises InvalidMessage."""
    if isinstance(given, Mapping):
        return _exponential(given)
    if not isinstance(given, list | tuple | np.ndarray) or len(given) > MOST_DELAYS:
        raise InvalidMessage(f"{_FORMS}, not {shown(given)}")
    return tuple([_delay(one, given) for one in given]) or None


def _exponential(given: Mapping[object, object]) -> tuple[int, ...]:
    """The delays that grow by a factor, up to the largest."""
    if len(given) != len(_NAMES) or any(name not in given for name in _NAMES):
        raise InvalidMessage(f"{_FORMS}, not {shown(given)}")
    first_ms, most_ms, factor = _delay(given["first_ms"], given), _delay(given["most_ms"], given), given["factor"]
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.integer | np.floating):
        factor = 0  # which is refused
    if not 1 < factor <= MOST_DELAY_MS or not 0 < first_ms <= most_ms:
        raise InvalidMessage(f"factor is a number above 1, and first_ms is from 1 to most_ms, not {shown(given)}")
    delays, delay_ms = [first_ms], float(first_ms)
    while delays[-1] < most_ms:
        delay_ms *= float(factor)
        delays.append(min(most_ms, round(min(delay_ms, most_ms))))
        if len(delays) > MOST_DELAYS:
            raise InvalidMessage(f"the back-off takes more than {MOST_DELAYS} delays to grow; give a larger factor")
    return tuple(delays)


def _delay(value: object, given: object) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if type(value) is not int or not 0 <= value <= MOST_DELAY_MS:
        raise InvalidMessage(f"{_FORMS}, not {shown(given)}")
    return value


def rests_ms(backoff: Sequence[int], most_attempts: int | None, attempts: Int64s) -> Int64s:
    """(n,) how long messages rest that were given out `attempts` (n,) times; dead letters do not."""
    found: Int64s = np.array(backoff, np.int64)[np.clip(attempts - 1, 0, len(backoff) - 1)]
    return found if most_attempts is None else np.where(attempts >= most_attempts, 0, found)
