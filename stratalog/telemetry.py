"""OpenTelemetry: the metrics of a store as observable instruments. It needs the package `opentelemetry-api`."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from .store import InvalidConfig, MetricFamily, StoreClosed, StoreReader, described_metrics, metric_families

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

__all__ = ["observe"]

FRESH_S = 0.1  # a collection asks each instrument by itself: all of them get the figures of one look
UNITS = {"_bytes": "By", "_seconds": "s", "_messages": "{message}"}


def observe(store: StoreReader, meter: Meter | None = None) -> None:
    """Have OpenTelemetry observe a store until it is closed: each metric of `store.metrics()` as an instrument.

    A counter is an observable counter, all else an observable gauge. `stratalog_written_bytes_total` is
    `stratalog.written` with the unit By: an exporter for Prometheus makes the first name of it again. Labels are
    attributes. Of the histogram of writes there are its sum and its count. The instruments are read when a reader of
    the SDK collects, and keep no store open.

    Args:
        store: one that writes, or a reader.
        meter: which makes the instruments; None takes the one named "stratalog" of the global provider.

    Raises:
        ImportError: the package `opentelemetry-api` is not there.
        InvalidConfig: this is no store.
        StoreClosed: it is closed.
    """
    if not isinstance(store, StoreReader):
        raise InvalidConfig(f"a store is observed, not {type(store).__name__}")
    try:
        from opentelemetry import metrics  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ImportError(
            "stratalog.telemetry needs OpenTelemetry: pip install 'stratalog[telemetry]', or opentelemetry-api"
        ) from error
    metric_families(store)  # an error now and not at the first collection
    meter = meter or metrics.get_meter("stratalog")
    latest = _LatestMetrics(store)
    for family in described_metrics():
        if family.kind == "histogram":
            for suffix, unit in (("_sum", "s"), ("_count", "{write}")):
                name = family.name.replace("stratalog_", "stratalog.").removesuffix("_seconds") + suffix
                observed = partial(latest.observations, family.name, suffix)
                meter.create_observable_counter(name, [observed], unit, family.help)
            continue
        name, unit = otel_name(family)
        make = meter.create_observable_counter if family.kind == "counter" else meter.create_observable_gauge
        make(name, [partial(latest.observations, family.name, "")], unit, family.help)


def otel_name(family: MetricFamily) -> tuple[str, str]:
    """The name of a metric by OpenTelemetry's conventions, without its unit, and the unit."""
    name = family.name.replace("stratalog_", "stratalog.").removesuffix("_total")
    for ending, unit in UNITS.items():
        if name.endswith(ending):
            return (name if unit.startswith("{") else name.removesuffix(ending)), unit
    return name, "1"


class _LatestMetrics:
    """The metrics of a store, looked at once for a collection. Any thread may ask."""

    def __init__(self, store: StoreReader) -> None:
        self._store = weakref.ref(store)
        self._found: dict[str, MetricFamily] = {}
        self._at_s = float("-inf")
        self._lock = threading.Lock()

    def observations(self, name: str, suffix: str, _options: CallbackOptions) -> Iterable[Observation]:
        """The values of a metric now; none once the store is closed."""
        from opentelemetry.metrics import Observation  # noqa: PLC0415  # see `observe`

        family = self._now().get(name)
        samples = () if family is None else family.samples
        return [Observation(one.value, dict(one.labels)) for one in samples if one.suffix == suffix]

    def _now(self) -> dict[str, MetricFamily]:
        with self._lock:
            if time.monotonic() - self._at_s > FRESH_S:
                store = self._store()
                try:
                    self._found = {} if store is None else {one.name: one for one in metric_families(store)}
                except StoreClosed:
                    self._found = {}
                self._at_s = time.monotonic()
            return self._found
