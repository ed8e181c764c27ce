"""What only a GPU can show, in one report: ``bash recipes/gpu_check.sh``."""
