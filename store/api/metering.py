"""The figures of a store for hooks of other programs."""

from __future__ import annotations

from ..metrics.family import MetricFamily
from .store_reader import StoreReader


def metric_families(store: StoreReader) -> list[MetricFamily]:
    """The metrics of a store with their values, as `StoreReader.metrics` writes them. Raises StoreClosed."""
    return store._families()
