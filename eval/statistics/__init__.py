"""From segment statistics to scores, intervals and significance."""
