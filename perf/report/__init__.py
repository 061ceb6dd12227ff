"""Medians, tables, progress, and which layer served a read."""
