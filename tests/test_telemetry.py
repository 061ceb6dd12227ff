"""OpenTelemetry's hook: each metric is an instrument, of the same value, and keeps no store open."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from stratalog import InvalidConfig, MessageStore, StoreClosed, telemetry
from stratalog.store import MetricFamily, described_metrics, metric_families
from stratalog.telemetry import observe, otel_name

from .store.helpers import tiny, until

Values = dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Any, str]]


def collected(reader: InMemoryMetricReader) -> Values:
    """(value, unit) by name and attributes."""
    found: Any = reader.get_metrics_data()
    return {
        (metric.name, tuple(sorted(point.attributes.items()))): (point.value, metric.unit)
        for of_resource in (found.resource_metrics if found is not None else ())
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.data.data_points
    }


def test_each_metric_is_an_instrument_with_its_value_unit_and_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "FRESH_S", -1.0)  # each instrument looks for itself, and not at an earlier moment
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with MessageStore.open(tmp_path, tiny()) as store:
        observe(store, provider.get_meter("test"))
        store.append_batch([("t", 0, b"x" * 100)] * 3)
        store.subscribe("t", "s").receive(2)
        store.flush()
        looks: list[tuple[list[MetricFamily], Values]] = []

        def is_still() -> bool:
            looks.append((metric_families(store), collected(reader)))
            return looks[-1][0] == metric_families(store)

        until(is_still)  # the background may write meanwhile
        before, found = looks[-1]
        checked = 0
        for family in before:
            name, unit = otel_name(family)
            for sample in family.samples if family.kind != "histogram" else ():
                assert found[name, tuple(sorted(sample.labels))] == (sample.value, unit), family.name
                checked += 1
        assert checked > 50
        assert found["stratalog.subscription_in_flight_messages", (("subscription", "s"), ("topic", "t"))][0] == 2
        assert found["stratalog.write_duration_count", ()][0] >= 1
        assert found["stratalog.write_duration_sum", ()] == (pytest.approx(store.stats()["log"]["write_ms"] / 1e3), "s")
    until(lambda: collected(reader) == {})
    provider.shutdown()


def test_no_two_instruments_have_one_name() -> None:
    names = Counter(otel_name(family)[0] for family in described_metrics())
    assert set(names.values()) == {1}
    assert {unit for _, unit in map(otel_name, described_metrics())} == {"By", "s", "{message}", "1"}


def test_a_closed_or_dropped_store_has_no_values_and_is_not_kept(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    store: MessageStore | None = MessageStore.open(tmp_path, tiny())
    assert store is not None
    observe(store, provider.get_meter("test"))
    assert collected(reader)
    known = weakref.ref(store)
    with pytest.warns(ResourceWarning, match="was never closed"):
        store = None
        gc.collect()
    assert known() is None
    until(lambda: collected(reader) == {})
    provider.shutdown()


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        monkeypatch.setitem(sys.modules, "opentelemetry", None)
        with pytest.raises(ImportError, match="pip install"):
            observe(store)


def test_what_is_no_open_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="a store is observed"):
        observe("store")  # type: ignore[arg-type]  # what is tested
    with MessageStore.open(tmp_path, tiny()) as store:
        pass
    with pytest.raises(StoreClosed):
        observe(store)
