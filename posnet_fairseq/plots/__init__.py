"""Pictures of the mixers of a model, of trainings, and of comparisons."""

import logging

import matplotlib

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq lets all messages of all packages through
matplotlib.use("Agg")
