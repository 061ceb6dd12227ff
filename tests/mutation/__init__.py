"""A mutation run: small changes of store/ and cache/ that some test has to notice."""
