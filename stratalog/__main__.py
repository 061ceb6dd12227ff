"""`python -m stratalog`: the command `stratalog`."""

from .console.app import main

main()
