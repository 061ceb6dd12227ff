"""`python -m console`: the command `stratalog`."""

from .app import main

main()
