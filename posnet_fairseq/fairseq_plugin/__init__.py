"""Everything that knows fairseq: options, checkpoints, binarized data, averaging, repairs."""

from posnet_fairseq.fairseq_plugin.slow_imports import import_fairseq

import_fairseq()
