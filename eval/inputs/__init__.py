"""What is scored: configuration, the plan of a comparison, loading and checking of texts."""
