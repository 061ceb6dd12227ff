"""The console command `stratalog`: cat, topics, inspect, verify, and the measurements as `bench`."""
