"""Layers of a trained model are replaced by faster ones that compute the same, for inference on CPUs."""
