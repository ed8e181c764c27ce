"""Numerics shared by several mixers. They import torch and nothing of fairseq."""
