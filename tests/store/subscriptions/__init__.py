"""Tests of the subscriptions."""
