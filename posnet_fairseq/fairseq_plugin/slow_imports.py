"""fairseq without scikit-learn and scipy, which two of its modules import and posnet never uses.

fairseq imports all of its tasks and criterions. ``audio_classification`` and ``sentence_prediction`` import
scikit-learn and scipy, and with them pandas: more time than all the rest. Remove this when fairseq imports them where
it calls them.
"""

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from posnet_fairseq.fairseq_plugin import optional_types
from posnet_fairseq.shared.failures import FAIRSEQ_WHEEL

# Packages, and the module of each that fairseq takes functions from.
_SLOW = {"sklearn": "metrics", "scipy": "stats"}


class _StandIn(ModuleType):
    """A module with functions that import it when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):  # asked for by whoever looks at all modules
            raise AttributeError(name)

        def function(*arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*arguments, **options)

        return function


def import_fairseq() -> ModuleType:
    """Import fairseq, with stand-ins for the slow packages unless they are imported already: 1 s less of 3.5 s."""
    made: dict[str, ModuleType] = {}
    for name, part in _SLOW.items():
        if name not in sys.modules:
            package, module = ModuleType(name), _StandIn(f"{name}.{part}")
            package.__spec__ = ModuleSpec(name, None)  # for importlib.util.find_spec
            setattr(package, part, module)
            made |= {name: package, module.__name__: module}
    sys.modules |= made
    try:
        optional_types.repair()
        return importlib.import_module("fairseq")
    except Exception as error:  # fairseq 0.12.2 raises ValueError on Python 3.11 and later
        if getattr(error, "name", None) == "fairseq" or isinstance(error, OSError):  # not installed; a full disk
            raise
        raise ImportError(
            f"fairseq does not import on Python {sys.version.split()[0]} ({type(error).__name__}: {error}). "
            f"posnet needs a fairseq fixed for Python 3.11: {FAIRSEQ_WHEEL}"
        ) from error
    finally:
        for name in made:
            del sys.modules[name]
