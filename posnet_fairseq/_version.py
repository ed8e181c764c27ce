"""The version, which the lowest modules read too."""

__version__ = "0.4.0"
