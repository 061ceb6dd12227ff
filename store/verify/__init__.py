"""Checking a closed store without changing it."""
