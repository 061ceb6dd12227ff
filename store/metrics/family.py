"""A metric and its values, as Prometheus has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Figures = Mapping[str, Any]

PREFIX: Final = "stratalog_"
MOST_NAMED: Final = 100  # topics, and subscriptions, that have values of their own


class Sample(NamedTuple):
    """One value of a metric.

    Attributes:
        value: in the unit of the metric's name; a count where it names none.
        labels: pairs of name and value, in the order in which they are shown.
        suffix: of the metric's name; of a histogram alone.
    """

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""


class MetricFamily(NamedTuple):
    """A metric: all values of one name.

    Attributes:
        name: begins with "stratalog_", and ends with the unit (`_bytes`, `_seconds`) if there is one; of a counter then
            `_total` follows.
        kind: a "counter" grows from the opening of the store on; a "gauge" goes up and down.
        help: a sentence.
        samples: its values. It has one at least.
    """

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]
