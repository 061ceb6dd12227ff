"""Jobs on the data of stores, as functions; `stratalog spark NAME` runs each as a command."""

from .compact import compact
from .export import Exported, export
from .load import Loaded, load
from .page import page_of
from .profile import Profile, profile
from .rebuild import RebuiltStore, rebuild
from .reshard import reshard
from .verify import Verified, verify

__all__ = [
    "Exported",
    "Loaded",
    "Profile",
    "RebuiltStore",
    "Verified",
    "compact",
    "export",
    "load",
    "page_of",
    "profile",
    "rebuild",
    "reshard",
    "verify",
]
