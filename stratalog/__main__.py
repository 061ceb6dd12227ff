"""`python -m stratalog`: the command `stratalog`."""

from .console import main

main()
