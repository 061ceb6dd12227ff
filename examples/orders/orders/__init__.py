"""A shop and its worker, which talk through RocketMQ."""
