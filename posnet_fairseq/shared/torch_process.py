"""What posnet changes in a process that computes with torch: the size of oneDNN's caches, and forks.

Importing posnet changes nothing. Its commands do this by themselves; programs of other kinds call
:func:`prepare_service`. This module imports no torch.
"""

import contextlib
import ctypes
import os


def limit_product_caches() -> None:
    """Let oneDNN and torch keep the code of 64 products, unless the environment says otherwise.

    They keep it by the shapes of products, 1,024 of them by default: gigabytes in a process that meets ever other
    lengths, which save little time. Both numbers are read at the first product by oneDNN, not when torch is imported.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def end_threads() -> None:
    """End OpenMP's threads: a fork has none of them, but would wait for them. The next product starts others."""
    with contextlib.suppress(AttributeError):  # another library than GNU's
        ctypes.CDLL(None).omp_pause_resource_all(2)  # omp_pause_hard


def prepare_service() -> None:
    """Prepare this process for translating for a long time, also by forks of it. Call it before any model computes.

    oneDNN's caches are limited to 64 products: the memory of a process that translates batches of all sizes stops
    growing. The environment variables ``ONEDNN_PRIMITIVE_CACHE_CAPACITY`` and ``LRU_CACHE_CAPACITY`` come first where
    they are set. OpenMP's threads are ended before every ``os.fork``, so that children compute, too.
    """
    limit_product_caches()
    os.register_at_fork(before=end_threads)
