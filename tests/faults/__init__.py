"""Faults of the real machine, on the real engine: kills, full disks, refused calls, forks, clocks."""
