"""The references that are measured beside the store: the device, producers without an engine, RocksDB and LMDB."""
