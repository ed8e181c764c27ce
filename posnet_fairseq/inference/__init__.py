"""Trained models, prepared for inference."""
