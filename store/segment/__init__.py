"""One segment: its index while it is open, its footer once it is sealed, and how it is scanned."""
