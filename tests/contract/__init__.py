"""What a store promises to its callers, tried on a store and on a connection to one."""
