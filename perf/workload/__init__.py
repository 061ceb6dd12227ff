"""The messages of a run, the ways to append and read them, and the check of what is read."""
