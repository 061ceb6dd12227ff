"""Settings of topics."""
