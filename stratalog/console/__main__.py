"""`python -m stratalog.console`: the command `stratalog`."""

from .app import main

main()
