"""Trained models with parts on simulated memristive crossbars, which multiply where weights are stored."""
