"""From texts to results: statistics of segments, their cache, significance tests, scores by length."""
