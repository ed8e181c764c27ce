"""Processes of a training, as torchrun starts them."""
