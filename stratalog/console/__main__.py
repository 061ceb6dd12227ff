"""`python -m stratalog.console`: the command `stratalog`."""

from . import main

main()
