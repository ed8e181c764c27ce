"""Search for the translations of trained models, or for the continuations of texts, with torch alone."""
