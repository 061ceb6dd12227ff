"""The console command `stratalog`: inspect, verify, and the measurements as `bench`."""
