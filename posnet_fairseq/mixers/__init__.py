"""The token mixers, a file each. Every file here is imported: drop one in. Their base classes are in ``bases``."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")
