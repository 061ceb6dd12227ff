"""How the store's bytes lie on disk: layout, frames, footers."""
