"""Plans of bulk reads: a store up to one fixed end, cut into parts that any process reads by itself."""
