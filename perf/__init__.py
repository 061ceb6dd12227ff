"""Measurements, workloads and references. Imports only the public face of `store`."""
