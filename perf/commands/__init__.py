"""The command line of the measurements."""
