"""The texts that the page and the Markdown of a report share: figures with their units, spreads, references."""

from __future__ import annotations

from .record import Measure
from .tables import figure

HEADINGS = ("", "figure", "spread", "beside it", "what it means")


def amount(value: float, unit: str) -> str:
    """ "38,700 msg/s", "1.25 us"."""
    whole = float(value).is_integer() and abs(value) < 1000
    return f"{f'{value:.0f}' if whole else figure(float(value))} {unit}".strip()


def spread(measure: Measure) -> str:
    """The smallest and the largest round: "36,100 to 39,000, 3 rounds"."""
    if len(measure.values) == 1:
        return "1 round"
    low, high = (amount(value, "") for value in (measure.low, measure.high))
    return f"{low} to {high}, {len(measure.values)} rounds"


def beside(measure: Measure) -> str:
    """The reference and the share of it: "0.88 of 43,600 msg/s (the same threads without an engine)"."""
    if measure.reference is None or measure.share is None:
        return ""
    return f"{measure.share:.2f} of {amount(measure.reference, measure.unit)} ({measure.reference_what})"


def sentence(measure: Measure) -> str:
    """A line of a summary: "Appends by 40 threads: 38,700 msg/s, 0.88 of 43,600 msg/s (without an engine)."."""
    reference = beside(measure)
    told = f"{measure.what}: {amount(measure.value, measure.unit)}{', ' if reference else ''}{reference}."
    return told[0].upper() + told[1:]


def row(measure: Measure) -> tuple[str, str, str, str, str]:
    """The cells of a measure, one for each of HEADINGS."""
    return (measure.what, amount(measure.value, measure.unit), spread(measure), beside(measure), measure.meaning)
