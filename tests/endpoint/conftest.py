"""gRPC is quiet: tests do to it what it would write about."""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
