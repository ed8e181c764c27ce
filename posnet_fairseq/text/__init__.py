"""Between plain text and token ids: tokenization, dictionaries, and the card of a dataset."""
