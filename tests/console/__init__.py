"""The console command `stratalog`."""
