"""From raw archives to binarized data with a card that says how it was made."""
