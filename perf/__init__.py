"""Measurements: the store, its peers and the bare machine with the same work.

machine      folders, threads, what the process used
workload     the messages, the ways to append and read them, and the check of what is read
references   the device alone, producers without an engine
peers        this store, RocksDB, LMDB, SQLite, queue libraries, Redis, NATS: one adapter each
experiments  one measurement a file
report       tables, progress; a report's record, its page, JSON and Markdown; two reports compared
commands     `python -m perf NAME`

An import only goes up this list. Only public names of the store are used.
"""

import sys

if __name__ == "perf" and sys.argv[0] != "-m":  # `python -m perf` in a checkout begins here, and nothing else may
    raise ImportError("import stratalog.perf: this folder is a part of the package stratalog")
