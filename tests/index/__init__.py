"""Tests of index/: both wheels against one contract, the purgatory, the thread that drives them."""
