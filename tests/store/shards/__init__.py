"""Tests of shards, commits and attaching."""
