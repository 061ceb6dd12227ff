"""Tests of the trackers of delayed entries."""
