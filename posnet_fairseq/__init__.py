"""posnet: token mixers in place of self-attention, for PyTorch, and for fairseq with ``--user-dir``.

Importing :mod:`posnet_fairseq.models` registers the fairseq plugin, which is what fairseq does with ``--user-dir``.
Nothing else here needs fairseq.
"""

import importlib
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from posnet_fairseq._version import __version__

_show_error = sys.excepthook


def _show_no_interrupt(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _show_error(kind, error, traceback)


# Of a command that is interrupted while it is loaded, no traceback is shown, as of one that works.
if sys.argv and os.path.basename(sys.argv[0]).startswith("posnet-"):
    sys.excepthook = _show_no_interrupt

if TYPE_CHECKING:
    from posnet_eval.api import score
    from posnet_eval.minimum_bayes_risk import rerank
    from posnet_fairseq.api import load
    from posnet_fairseq.generation import load_language_model
    from posnet_fairseq.mixers.bases.as_attention import as_attention
    from posnet_fairseq.mixers.bases.building import build_mixer, mixer_names
    from posnet_fairseq.shared.torch_process import prepare_service

# Public names by the module that defines them. They are imported when they are used: torch takes a second.
_PUBLIC = {
    "as_attention": "posnet_fairseq.mixers.bases.as_attention",
    "build_mixer": "posnet_fairseq.mixers.bases.building",
    "mixer_names": "posnet_fairseq.mixers.bases.building",
    "load": "posnet_fairseq.api",
    "load_language_model": "posnet_fairseq.generation",
    "prepare_service": "posnet_fairseq.shared.torch_process",
    "rerank": "posnet_eval.minimum_bayes_risk",
    "score": "posnet_eval.api",
}

__all__ = [
    "__version__",
    "as_attention",
    "build_mixer",
    "load",
    "load_language_model",
    "mixer_names",
    "prepare_service",
    "rerank",
    "score",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value  # not asked for again
    return value


def __dir__() -> list[str]:
    return __all__
