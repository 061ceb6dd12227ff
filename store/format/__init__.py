"""The format on disk: layout, frames, footers."""
