"""Python's search for garbage cycles, kept away from what is imported.

Modules and what they define stay until the process ends. Searching the 300,000 objects of torch again and again while
it is imported, and once more when the process ends, takes a third of the time in which a small model is loaded.
"""

import contextlib
import gc
from collections.abc import Iterator

_spares_imports = False


def spare_objects() -> None:
    """Search none of the objects that there are now, not even at the end of the process.

    From now on, neither those that are made while :func:`search_paused`.
    """
    global _spares_imports
    _spares_imports = True
    gc.freeze()


@contextlib.contextmanager
def search_paused() -> Iterator[None]:
    """Do not search during a block; what it has made counts as old."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if _spares_imports:
            gc.freeze()
        else:
            _let_objects_age()
        gc.enable()


def _let_objects_age() -> None:
    if not gc.get_freeze_count():  # otherwise a user has frozen some
        gc.freeze()
        gc.unfreeze()  # to the oldest generation
