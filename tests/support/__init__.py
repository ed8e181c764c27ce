"""Helpers of the tests: small models, references, laws, made-up corpora and archives, commands."""
