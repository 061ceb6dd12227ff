"""stratalog: an embedded, durable message store. Open a folder; have topics, queues and offsets in it.

Begin with `MessageStore.open`. The parts: `stratalog.store` is the log, `stratalog.cache` the tiers of memory,
`stratalog.perf` the measurements. They are links to the folders of the repository.
"""

from .store import *  # noqa: F403  # the names of its `__all__`, which are listed in one place
from .store import __all__ as __all__
