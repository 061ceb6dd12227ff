"""The machine that a measurement runs on: folders, threads, and what the process used."""
