"""A mutation run: small changes of store/, cache/ and index/ that some test has to notice."""
