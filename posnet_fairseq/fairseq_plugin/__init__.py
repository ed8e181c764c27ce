"""Everything that knows fairseq: options, checkpoints, binarised data, averaging, repairs."""

from posnet_fairseq.fairseq_plugin.slow_imports import import_fairseq

import_fairseq()
