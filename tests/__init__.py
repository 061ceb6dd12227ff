"""Tests of stratalog."""
