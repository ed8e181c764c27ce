"""The quickstart's corpus: translated interface texts of open-source programs."""
