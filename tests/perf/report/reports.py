"""Reports that tests make up."""

from __future__ import annotations

from stratalog.perf.report.record import Advice, Chapter, Chart, Measure, Report

BAD_NAME = "</script><b>|x"


def rate(name: str = "append.rate", *values: float, reference: float | None = None, noise: float = 0.1) -> Measure:
    return Measure(
        name=name, what=f"appends of {name}", unit="msg/s", values=values or (38_000.0, 40_000.0, 39_000.0),
        reference=reference, reference_what="the same without an engine", meaning="higher is better", noise=noise,
    )  # fmt: skip


def report(*measures: Measure, name: str = "host") -> Report:
    chart = Chart(
        title="latency by rate", x_what="msg/s", y_what="us", x=(1_000.0, 10_000.0, 20_000.0), log_x=True, log_y=True,
        lines={"p50": (100.0, 200.0, 2_000.0), BAD_NAME: (150.0, None, 9_000.0)}, marks={"the device": 80.0},
        meaning="where a line turns up, the store is full",
    )  # fmt: skip
    chapter = Chapter(title="Appends", text="A & B < C", measures=measures or (rate(),), charts=(chart, chart))
    return Report(
        name=name, title=f"What it can do {BAD_NAME}", summary=("39,000 durable messages a second", BAD_NAME),
        advice=(Advice(setting="lanes", value="2", why="two forces at once", worth="1.3 x"),),
        chapters=(chapter,), machine={"CPU": "one", "others": "3 %"}, how="by `bench host`; 2026",
    )  # fmt: skip
