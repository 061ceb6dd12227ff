"""The documentation as a site: it builds without a warning, and a browser shows it without a network."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from .browser import DESKTOP, PHONE, Tab, tab

ROOT = Path(__file__).resolve().parents[1]
PAGES = (  # one of each kind; the widest of their kinds
    "index", "is-it-for-me", "tutorials/job-queue", "tutorials/example-spark_stream", "how-to/spark",
    "reference/settings", "reference/format", "reference/python/store", "explanation/delayed-index",
    "developers/architecture", "decisions/house",
)  # fmt: skip
WIDER = """[...document.querySelectorAll('.md-content *')].filter((one) =>
    one.getBoundingClientRect().right > innerWidth + 1 &&
    !one.closest('pre, .md-typeset__scrollwrap, .highlight')).map((one) => one.outerHTML.slice(0, 200))"""
BROKEN = "[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)"
FOUND = "[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)"
OPEN = """(() => {
    const box = document.querySelector('[data-md-toggle=search]');
    box.checked = true;
    box.dispatchEvent(new Event('change'));
    document.querySelector('[data-md-component=search-query]').focus();
})()"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the page for developers says: once for all workers of the suite."""
    if find_spec("mkdocs") is None or find_spec("material") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the extra `docs` is not installed")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.with_suffix(".built").exists():
            build(folder)
            folder.with_suffix(".built").touch()
    return folder


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def test_every_public_name_has_its_place(site: Path) -> None:
    """Read from the site, not from the sources: a docstring that is not found leaves no anchor."""
    text = (site / "reference" / "python" / "store.html").read_text()
    for name in ("MessageStore", "MessageStore.append", "MessageStore.open", "StoreReader.read", "Transaction.commit"):
        assert f'id="stratalog.{name}"' in text
    assert "durable" in text and "Raises" in text


def test_pages_from_outside_are_there_and_nothing_of_the_code_is(site: Path) -> None:
    assert (site / "developers" / "architecture.html").exists()
    assert "read and compared" in (site / "reference" / "format.html").read_text()
    assert [path.name for path in site.rglob("*.py*")] == []
    assert [path.name for path in site.rglob("*.html") if "unpkg.com/iframe" in path.read_text()] == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_pages_are_no_wider_than_the_screen_and_ask_for_nothing_elsewhere(
    site: Path, page: Tab, size: tuple[int, int]
) -> None:
    page.shape(*size, mobile=size == PHONE)
    for name in PAGES if size == PHONE else PAGES[::3]:  # what fits a phone fits a desk, but for the columns beside it
        page.load((site / f"{name}.html").as_uri())
        assert page.value("document.documentElement.scrollWidth") <= size[0], name
        assert page.value(WIDER) == [], name
        assert page.value(BROKEN) == [], name
    assert page.errors == []
    assert [asked for asked in page.asked if not asked.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_search_finds_pages_without_a_server(site: Path, page: Tab, size: tuple[int, int]) -> None:
    page.shape(*size, mobile=size == PHONE)
    page.load((site / "index.html").as_uri())
    page.value(OPEN)
    page.send("Input.insertText", text="visibility")
    for kind in ("keyDown", "keyUp"):  # a key of a keyboard, which the page waits for
        page.send("Input.dispatchKeyEvent", type=kind, key="Shift")
    found = page.until(FOUND, lambda links: len(links) > 3)
    assert any("/subscriptions.html" in link for link in found)
    assert page.errors == []
