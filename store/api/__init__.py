"""The public face: opening, appending, reading, closing."""
