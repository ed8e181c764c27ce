"""The result as people read it: a page, tables for a terminal, a paper and a README, and data."""
