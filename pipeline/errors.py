"""The errors of the pipeline. The text of each says what happened and what to do."""

from __future__ import annotations

from ..store import StoreError


class PipelineError(StoreError):
    """Base of the errors of the pipeline."""


class SparkNotFound(PipelineError):
    """PySpark is not installed. In a checkout, `pip install '.[spark]'` installs it."""


class JavaNotFound(PipelineError):
    """There is no Java that Spark runs on. Install Java 17 or later; or `pip install '.[spark]'` in a checkout,
    which brings one."""


class BadOption(PipelineError):
    """An option or a schema that the data source does not take; the text says which it takes."""
