"""Pictures: of what the mixers of a model do, of trainings, and of comparisons."""

import logging

import matplotlib

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq lets all messages of all packages through
matplotlib.use("Agg")
