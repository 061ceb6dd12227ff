"""What the store is measured beside: the device, producers without an engine, RocksDB and LMDB."""
