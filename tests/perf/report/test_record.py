"""Records of reports: what they refuse, and that their JSON is all of them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.perf.report.comparing import compare
from stratalog.perf.report.files import read_report, write_report
from stratalog.perf.report.markdown import markdown
from stratalog.perf.report.page import page
from stratalog.perf.report.record import Chart, Measure, NoReport, report_of
from tests.seeds import draw_seed

from .reports import rate, report


def test_measure_gives_median_range_and_share_of_its_reference() -> None:
    measure = rate("append.rate", 30.0, 10.0, 20.0, reference=40.0)
    assert (measure.value, measure.low, measure.high, measure.share) == (20.0, 10.0, 30.0, 0.5)
    assert rate().share is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_value_that_no_json_has_is_refused_with_its_name(value: float) -> None:
    with pytest.raises(ValueError, match=r"append\.rate"):
        rate("append.rate", 1.0, value)
    with pytest.raises(ValueError, match=r"append\.rate"):
        rate("append.rate", 1.0, reference=value)
    with pytest.raises(ValueError, match="no finite number"):
        Chart(title="a chart", x_what="x", y_what="y", x=(1.0,), lines={"a": (value,)})


def test_measure_without_a_value_and_chart_with_a_line_too_short_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        Measure(name="empty", what="nothing", unit="s", values=())
    with pytest.raises(ValueError, match="one value for each x"):
        Chart(title="a chart", x_what="x", y_what="y", x=(1.0, 2.0), lines={"a": (1.0,)})
    with pytest.raises(ValueError, match="x ascends"):
        Chart(title="a chart", x_what="x", y_what="y", x=(2.0, 2.0), lines={"a": (1.0, 1.0)})


def test_report_that_is_written_and_read_is_the_same_report(tmp_path: Path) -> None:
    made = report(rate("a", 1.0, 2.0, reference=3.0), rate("b"))
    files = write_report(tmp_path, made)
    assert [path.name for path in files] == ["host.json", "host.html", "host.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host.html", "host.json", "host.md"]
    assert read_report(tmp_path / "host.json") == made
    shown = json.loads((tmp_path / "host.json").read_text())["chapters"][0]["measures"][0]
    assert (shown["value"], shown["low"], shown["high"]) == (1.5, 1.0, 2.0)


def test_two_measures_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two measures have the name a"):
        report(rate("a"), rate("a")).measures()


def broken(path: str, value: object) -> dict[str, Any]:
    """The JSON of a report with one thing changed, by its path."""
    whole: dict[str, Any] = json.loads(json.dumps(report().as_dict()))
    inner: Any = whole
    *way, last = path.split("/")
    for step in way:
        inner = inner[int(step) if step.isdigit() else step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [("format", 99, "format 99"), ("chapters", None, "no chapters"), ("chapters", 5, "no whole report"),
     ("chapters/0/measures/0/values", [], "at least one value"), ("chapters/0/measures/0/unit", None, "KeyError"),
     ("chapters/0/charts/0/lines", [], "no whole report"), ("summary", None, "no whole report"),
     ("chapters/0/measures/0/values", ["fast"], "no whole report")],
    ids=str,
)  # fmt: skip
def test_json_that_is_no_whole_report_is_refused_by_its_name(path: str, value: object, said: str) -> None:
    with pytest.raises(NoReport, match=rf"^old\.json .*{said}"):
        report_of(broken(path, value), "old.json")


def test_damaged_json_is_refused_or_is_a_report_that_can_be_shown() -> None:
    rng, refused = random.Random(draw_seed()), 0
    for _ in range(300):
        whole: Any = json.loads(json.dumps(report(rate("a"), rate("b")).as_dict()))
        places = list(places_in(whole))
        holder, key = rng.choice(places)
        holder[key] = rng.choice([None, 5, -1.5, "x", [], {}, [None], {"a": 5}, True, float("nan"), 10**400])
        try:
            read = report_of(whole, "old.json")
        except NoReport:
            refused += 1
            continue
        assert page(read) and markdown(read)
        assert len(compare(read, report(rate("a"))).changes) <= 1
    assert refused > 50


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container below a value of JSON, with each of its keys or numbers."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from places_in(value[key])


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '"x"', "\udcff", "1" * 5000], ids=lambda text: ascii(text)[:9])
def test_file_that_holds_no_report_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(NoReport, match=str(path)):
        read_report(path)
    with pytest.raises(NoReport, match="cannot be read"):
        read_report(tmp_path / "missing.json")


def test_files_stay_as_they_were_if_the_new_ones_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path, report())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {"host.json", "host.html", "host.md"}

    def half(self: Path, text: str) -> int:
        self.write_bytes(text.encode()[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space"):
        write_report(tmp_path, report(rate("another")))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
