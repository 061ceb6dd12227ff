"""Metrics as Prometheus reads them: its text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .family import MetricFamily, Sample

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def text_of(families: Iterable[MetricFamily]) -> str:
    """All metrics: for each a line of help, one of its kind, and a line for each value."""
    return "".join(line + "\n" for family in families for line in _lines_of(family))


def _lines_of(family: MetricFamily) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        yield f"{family.name}{sample.suffix}{_labels_of(sample)} {_number(sample.value)}"


def _labels_of(sample: Sample) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels)
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    """Exact: an integer as it is, also where a float would round it."""
    return str(value) if isinstance(value, int) else repr(float(value))
