"""The soak: a random workload, kills and faults, and a check of everything after each: `python -m tests.soak`."""
