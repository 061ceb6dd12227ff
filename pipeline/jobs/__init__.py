"""Jobs on the data of stores, as functions; `stratalog spark NAME` is the same as a command."""

from .export import Exported, export
from .page import page_of
from .profile import Profile, profile
from .verify import Verified, verify

__all__ = ["Exported", "Profile", "Verified", "export", "page_of", "profile", "verify"]
