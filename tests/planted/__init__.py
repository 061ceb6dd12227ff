"""Bugs that are planted in a copy of the sources, one at a time, to show that the tests see them.

Those of `tests/simulation/planted.py` are found by the simulation; these by the tests of each part.
"""
