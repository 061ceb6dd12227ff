"""Files, folders, the ring and what the system is asked for; knows nothing of messages."""
