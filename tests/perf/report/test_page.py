"""The page and the Markdown of a report: all figures are in them, names are shown as they are, nothing is loaded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from stratalog.perf.report.markdown import markdown
from stratalog.perf.report.page import page
from tests.browser import DESKTOP, PHONE, WIDTHS, complaints, tab
from tests.test_pages import faults_of_tables

from .reports import BAD_NAME, rate, report

REPORT = report(rate("append.rate", 38_000.0, 40_000.0, 39_000.0, reference=44_000.0))
PARTS = (
    "39,000 msg/s", "38,000 to 40,000, 3 rounds", "0.89 of 44,000 msg/s (the same without an engine)",
    "higher is better", "two forces at once", "1.3 x", "39,000 durable messages a second", "by `bench host`; 2026",
)  # fmt: skip


def test_page_has_every_figure_with_spread_reference_and_meaning() -> None:
    text = re.sub("</?code>", "`", unescape(page(REPORT)))
    assert [part for part in PARTS if part not in text] == []


def test_page_asks_for_nothing_but_itself() -> None:
    text = page(REPORT)
    assert re.findall(r"<(?:script|img|iframe|link)[^>]*\b(?:src|href)=\"(?!data:,\")", text) == []
    assert "@import" not in text and "url(" not in text
    assert "Content-Security-Policy" in text and "default-src 'none'" in text


def test_names_end_no_script_and_are_no_tags() -> None:
    text = page(REPORT)
    data = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    charts = json.loads(data[1])
    assert BAD_NAME in charts[0]["lines"] and len(charts) == 2
    assert "<b>|x" not in text


def test_markdown_has_whole_tables_with_every_figure() -> None:
    text = markdown(REPORT)
    assert faults_of_tables(text) == []
    assert [part for part in PARTS if part not in text] == []
    assert "<b>" not in text


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_browser_draws_each_chart_inside_the_page_and_has_no_complaint(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "host.html").write_text(page(REPORT))
    assert complaints((tmp_path / "host.html").as_uri(), tmp_path / "home", size) == []


def test_chart_without_a_line_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(page(REPORT).replace('id="chart-1"', 'id="chart-x"'))
    said = complaints((tmp_path / "bad.html").as_uri(), tmp_path / "home", PHONE)
    assert any("TypeError" in one for one in said) and "chart 1 is empty" in said


SHOWN_NAMES = """[...document.querySelector(".u-legend").querySelectorAll(".u-label")]
  .filter((one) => one.offsetParent).map((one) => one.textContent)"""


def test_chart_says_its_unit_above_it_and_names_its_lines_below(tmp_path: Path) -> None:
    (tmp_path / "host.html").write_text(page(REPORT))
    with tab(tmp_path / "home") as shown:
        shown.shape(*PHONE)
        shown.load((tmp_path / "host.html").as_uri())
        shown.until("document.querySelectorAll('.chart .up').length", lambda count: count == 2)
        assert shown.value("document.querySelector('.chart .up').textContent") == "\u2191 us"
        assert shown.value(SHOWN_NAMES) == ["p50", BAD_NAME, "the device"]


def test_long_word_makes_no_page_wider_than_a_phone(tmp_path: Path) -> None:
    word = "/dev/shm/" + "a" * 200
    told = replace(report(rate(word)), title=word, summary=(f"A tier in {word} has a message",), how=f"--pmem {word}")
    (tmp_path / "host.html").write_text(page(told))
    with tab(tmp_path / "home") as shown:
        shown.shape(*PHONE)
        shown.load((tmp_path / "host.html").as_uri())
        wide, room = shown.value(WIDTHS)
        assert wide <= room <= PHONE[0]


def test_a_script_that_fails_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<!doctype html><title>x</title><script>nothing.at.all()</script>")
    assert "nothing is not defined" in " ".join(complaints((tmp_path / "bad.html").as_uri(), tmp_path / "home"))


def test_page_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "host.html").write_text(page(REPORT))
    with tab(tmp_path / "home") as shown:
        shown.load((tmp_path / "host.html").as_uri())
        shown.print_to(tmp_path / "host.pdf")
    assert (tmp_path / "host.pdf").read_bytes().startswith(b"%PDF")
