"""One session of Spark for all tests of a process: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.pipeline import spark_session

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # no query is long enough for more
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two tasks at a time, each of which may fail twice; no pages, and few partitions."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = spark_session("local[2,3]", settings={**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()
