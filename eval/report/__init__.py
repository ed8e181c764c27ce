"""Reports of results: an HTML page, tables for a terminal, Markdown and LaTeX, CSV and JSON."""
