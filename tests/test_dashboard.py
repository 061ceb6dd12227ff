"""The dashboard for Grafana: it names metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog import CacheConfig, MessageStore, StoreConfig
from stratalog.store import MetricFamily, described_metrics, metric_families

from .store.helpers import until

DASHBOARD = Path(__file__).resolve().parents[1] / "docs" / "reference" / "grafana.json"
PARTS = ("_bucket", "_sum", "_count")  # of a histogram's name
OF_PROMETHEUS = {"job", "instance", "le"}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> Iterator[tuple[str, str, str]]:
    """(panel, expression, legend)."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MetricFamily]:
    """The metrics of a store that has something of everything; a histogram by the names of its parts."""
    config = StoreConfig(
        memory_limit_bytes=64 << 20, cache=CacheConfig(), retention_bytes=1 << 30, retention_ms=3_600_000,
        segment_bytes=1 << 20, max_message_bytes=1 << 16,
    )  # fmt: skip
    with MessageStore.open(tmp_path_factory.mktemp("store"), config) as store:

        def has_sealed() -> bool:
            store.append_batch([("t", 0, bytes(50_000))] * 20)
            return bool(store.stats()["segments"]["sealed"])

        until(has_sealed)
        store.append("t", 0, b"later", deliver_at_ms=4_000_000_000_000)
        store.subscribe("t", "s").receive(1)
        found = metric_families(store)
    names = {family.name: family for family in found if family.kind != "histogram"}
    return names | {family.name + part: family for family in found if family.kind == "histogram" for part in PARTS}


def test_each_metric_that_it_names_is_there_with_the_labels_that_it_uses(metrics: dict[str, MetricFamily]) -> None:
    known = {family.name for family in described_metrics()}
    checked = 0
    for panel, expression, legend in queries():
        names = re.findall(r"stratalog_\w+", expression)
        assert names, panel
        labels = {*re.findall(r"[{,](\w+)=", expression), *re.findall(r"\{\{(\w+)\}\}", legend)}
        for by in re.findall(r"by \(([^)]*)\)", expression):
            labels.update(by.split(", "))
        for name in names:
            assert name in metrics, f"{panel}: {name}"
            assert re.sub("_(bucket|sum|count)$", "", name) in known
            assert labels <= OF_PROMETHEUS | {label for one in metrics[name].samples for label, _ in one.labels}, panel
            checked += 1
    assert checked > 35


def test_counters_are_shown_as_rates_and_gauges_are_not(metrics: dict[str, MetricFamily]) -> None:
    for panel, expression, _ in queries():
        for name in re.findall(r"stratalog_\w+", expression):
            is_rate = f"rate({name}" in expression
            if name != "stratalog_removed_unacknowledged_messages_total":  # a number that should stay 0
                assert is_rate == (metrics[name].kind != "gauge"), f"{panel}: {name}"


def test_panels_lie_beside_each_other_and_each_has_a_text_and_a_unit() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or (
            panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
        )


def test_each_query_of_a_variable_names_a_metric_that_is_there(metrics: dict[str, MetricFamily]) -> None:
    asked = [one["query"]["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query"]
    assert len(asked) == 2
    assert all(set(re.findall(r"stratalog_\w+", one)) <= metrics.keys() for one in asked)
