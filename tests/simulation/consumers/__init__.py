"""Crashes of stores that have subscriptions and delayed messages: the real store on a simulated disk, step by step."""
