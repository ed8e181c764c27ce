"""Python's search for garbage cycles, kept away from what is imported.

Modules and what they define stay until the process ends. Searching the 300,000 objects of torch again and again while
it is imported, and once more when the process ends, takes a third of the time in which a small model is loaded.
"""

import contextlib
import gc
from collections.abc import Iterator

_USUAL = gc.get_threshold()
_OF_IMPORTS = 300_000  # objects, more than a command imports


def expect_imports() -> None:
    """Search less often, until :func:`spare_objects` is called."""
    gc.set_threshold(_OF_IMPORTS)


def spare_objects() -> None:
    """Search none of the objects that there are now, not even at the end of the process; new ones as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


@contextlib.contextmanager
def search_paused() -> Iterator[None]:
    """Do not search during a block; what it has made counts as old, which is searched rarely."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # to the oldest generation
        gc.enable()
