"""The token mixers, a file each. Every file here is imported: drop one in. Their base classes are in ``bases``.

Installed packages add theirs with an entry point of the group ``posnet.plugins``, the module that registers them.
"""

import importlib
import importlib.metadata
import pkgutil
import warnings

for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")

for _plugin in importlib.metadata.entry_points(group="posnet.plugins"):
    try:
        _plugin.load()
    except Exception as _error:  # whatever it is, commands that do not use its mixers work
        warnings.warn(
            f"The installed plugin {_plugin.name} of posnet cannot be imported, so its mixers are missing: "
            f"{_plugin.value}: {type(_error).__name__}: {_error}. Repair or uninstall its package.",
            stacklevel=1,
        )
