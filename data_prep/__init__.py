"""From raw archives to binarised data with a card that says how it was made."""
