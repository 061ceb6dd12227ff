"""stratalog.pipeline: bulk work on a store's data, on Spark through PySpark.

`spark_session` makes a session with the right settings; `register` adds the data source `stratalog` to a session.
Importing this package does not import PySpark: `pip install '.[spark]'` in a checkout installs it.
"""

from .errors import BadOption, JavaNotFound, PipelineError, SparkNotFound
from .session import borrowed_session, needs_spark, register, spark_session

__all__ = [
    "BadOption",
    "JavaNotFound",
    "PipelineError",
    "SparkNotFound",
    "borrowed_session",
    "needs_spark",
    "register",
    "spark_session",
]

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.pipeline: this folder is a part of the package stratalog")
