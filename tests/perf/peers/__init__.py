"""Tests of perf/peers."""
