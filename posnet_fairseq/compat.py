"""Versions this package works with, and what it mends in them. One place, each with the reason it is there."""

import sys


def check_fairseq():
    """Say how to mend an installation in which fairseq does not import.

    Raises:
        ImportError: fairseq is missing or does not run on this Python.
    """
    try:
        import fairseq  # noqa: F401
    except Exception as error:  # fairseq 0.12.2 raises ValueError on Python 3.11 and later
        raise ImportError(
            f"fairseq does not import on Python {sys.version.split()[0]} ({type(error).__name__}: {error}). "
            "posnet needs a fairseq mended for Python 3.11: pip install ve-fairseq==0.12.3"
        ) from error


def allow_checkpoint_types():
    """Let torch's safe loader read what fairseq writes into checkpoints besides tensors and plain values.

    torch 2.6 and later load with weights_only=True and refuse every type that is not listed. These hold data
    only and run no code. Namespace: fairseq's own models and adafactor; the numpy types: --eval-bleu.
    """
    import argparse

    import numpy
    import torch

    types = [argparse.Namespace, numpy.ndarray, numpy.dtype]
    types += [type(numpy.dtype(kind)) for kind in ("int64", "float64")]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        # numpy 2 renamed the module; a checkpoint keeps the name of the numpy that wrote it.
        types += [(numpy.array(0).__reduce__()[0], f"{module}._reconstruct"), (_numpy_scalar(), f"{module}.scalar")]
    torch.serialization.add_safe_globals(types)


def _numpy_scalar():
    import numpy

    return numpy.float64(0).__reduce__()[0]
