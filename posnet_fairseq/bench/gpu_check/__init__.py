"""What only a GPU can show: ``bash recipes/gpu_check.sh`` runs it in sections and writes one report."""
