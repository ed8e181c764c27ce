"""Between plain text and token ids: tokenisation, dictionaries, and the card of a dataset."""
