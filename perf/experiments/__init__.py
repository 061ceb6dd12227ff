"""One measurement a file. Each is a `Reported`, or a part of one."""
