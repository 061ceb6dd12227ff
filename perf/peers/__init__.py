"""The store and its peers, each behind one adapter: what it is set to, what it promises, what it can do."""
