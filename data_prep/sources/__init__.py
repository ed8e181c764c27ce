"""Where text comes from: downloads, archives and file formats."""
