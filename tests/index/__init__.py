"""Tests of index/: the wheel against a model, the purgatory, the thread that drives them."""
