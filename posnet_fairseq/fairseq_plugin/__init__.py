"""Everything that knows fairseq: registration, options, training, loading, repairs."""

from posnet_fairseq.fairseq_plugin.slow_imports import import_fairseq

import_fairseq()
