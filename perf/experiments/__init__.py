"""One measurement a file. Each is an `Experiment`, or a part of one."""
