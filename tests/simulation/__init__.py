"""Crashes and faults, tried by the thousand: the real store on a simulated disk, driven step by step."""
