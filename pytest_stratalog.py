"""The fixtures of stratalog for pytest: `message_store`, `rocketmq`, `rocketmq_process`.

pytest loads this module in each of its runs. So it imports nothing of stratalog before a test asks for a fixture, and
it is no part of the package, whose import takes time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stratalog import MessageStore
    from stratalog.endpoint import RocketMQHarness, RocketMQProcess


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings of these fixtures in pytest's file of settings."""
    parser.addini(
        "stratalog_durability", 'stratalog: durability of the fixtures\' stores, "os" or "force"', default="os"
    )
    parser.addini("rocketmq_seed", "stratalog: seed of power cuts and of faults with a share", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the markers."""
    config.addinivalue_line("markers", "message_store(**settings): fields of StoreConfig for the fixture message_store")
    config.addinivalue_line(
        "markers", "rocketmq(**options): durability, disk, seed and options of the endpoint for rocketmq[_process]"
    )


@pytest.fixture
def message_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    """An open `MessageStore` in `tmp_path / "message_store"`."""
    from stratalog import MessageStore, StoreConfig  # noqa: PLC0415  # not in each run of pytest

    given = {"durability": request.config.getini("stratalog_durability"), **_marked(request, "message_store")}
    with MessageStore.open(tmp_path / "message_store", StoreConfig(**given)) as store:
        yield store


@pytest.fixture
def rocketmq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RocketMQHarness]:
    """A RocketMQ endpoint in this process on a store in `tmp_path / "rocketmq"`, for official clients and
    `stratalog.connect`."""
    from stratalog.endpoint import RocketMQHarness  # noqa: PLC0415  # not in each run of pytest

    config = request.config
    given: dict[str, Any] = {
        "durability": config.getini("stratalog_durability"), "seed": int(config.getini("rocketmq_seed")),
        **_marked(request, "rocketmq"),
    }  # fmt: skip
    with RocketMQHarness(tmp_path / "rocketmq", **given) as harness:
        yield harness


@pytest.fixture
def rocketmq_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RocketMQProcess]:
    """A RocketMQ endpoint in a process of its own, on `tmp_path / "rocketmq_process"`; it can be killed."""
    from stratalog.endpoint import RocketMQProcess  # noqa: PLC0415  # not in each run of pytest

    given = {"durability": request.config.getini("stratalog_durability"), **_marked(request, "rocketmq")}
    given.pop("seed", None)
    given.pop("disk", None)
    with RocketMQProcess(tmp_path / "rocketmq_process", **given) as process:
        yield process


def _marked(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """What the markers of a test say; the nearest one counts."""
    found: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(name))):
        if marker.args:
            raise pytest.UsageError(f"the marker {name} takes options by name, as @pytest.mark.{name}(durability='os')")
        found.update(marker.kwargs)
    return found
