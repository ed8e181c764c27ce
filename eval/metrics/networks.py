"""Networks of metrics: loaded without running code or printing anything, and fed in batches of like length."""

import contextlib
import copy
import logging
import os
import pickle
import queue
import re
import warnings
from concurrent.futures import ThreadPoolExecutor

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import submitted

_LIKE_A_POSITION = "position_ids"  # buffers 0, 1, 2, ..., which newer versions of transformers do not store


@contextlib.contextmanager
def quiet(*loggers):
    """Import and load libraries in here, and what they have to say beside errors stays unsaid.

    Args:
        loggers: names of loggers that the libraries make talkative.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # some versions warn when a process forks
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        try:
            yield
        finally:
            # comet's import makes the root logger print everything that any library says
            root.setLevel(level)
            root.handlers[:] = handlers
            for name in loggers:
                logging.getLogger(name).setLevel(logging.ERROR)


@contextlib.contextmanager
def reading(folder, what):
    """Name a damaged file of configuration or a tokeniser's, for which the libraries raise whatever they like."""
    try:
        yield
    except (UsageError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise UsageError(f"{what} in {folder} cannot be read ({reason}). Copy or download the folder again.") from error


def read_weights(path, if_unsafe):
    """What a file of weights holds, read as data.

    Args:
        path: safetensors, or what torch.save wrote.
        if_unsafe: what to do, said of a file that could run code.

    Raises:
        UsageError: it could run code, or is damaged.
    """
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with quiet():
            return torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes end in errors of a dozen kinds
        if isinstance(error, OSError) and error.filename:
            raise  # the file cannot be opened
        unsafe = re.search(r"GLOBAL (\S+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and unsafe:
            raise UsageError(
                f"{path} was refused: it holds more than plain weights ({unsafe.group(1)}), which could run code when "
                f"loaded. {if_unsafe}"
            ) from error
        raise UsageError(
            f"{path} is damaged or holds no weights (it may be cut short). Copy or download it again."
        ) from error


def fill(network, weights, path):
    """Put weights into a network, all of them.

    Args:
        network: a module.
        weights: its state.
        path: where they come from.

    Raises:
        UsageError: some are missing or have another shape. (Weights that the network has no use for are left.)
    """
    if not isinstance(weights, dict):
        raise UsageError(f"{path} holds no weights of a model. Download it again.")
    try:
        missing = network.load_state_dict(weights, strict=False).missing_keys
    except RuntimeError as error:
        difference = str(error).strip().split("\n")[-1].strip()
        raise UsageError(f"{path} does not fit the model's configuration: {difference} Download both again.") from error
    missing = [name for name in missing if not name.endswith(_LIKE_A_POSITION)]
    if missing:
        raise UsageError(
            f"{path} lacks {len(missing)} of the model's weights, such as {missing[0]}. With random numbers in their "
            "place scores would mean nothing; download the model again."
        )


def devices(options):
    """All GPUs that are visible, if there are any and they may be used, else the CPU: list of torch devices."""
    import torch

    if options.cpu or not torch.cuda.is_available():
        return [torch.device("cpu")]
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]


def replicas(network, places):
    """A network on each of some devices: copies, and on the first one itself.

    Args:
        network: a module on the CPU.
        places: devices.
    """
    # One after the other: the CPU never holds more than two.
    others = [copy.deepcopy(network).to(place) for place in places[1:]]
    return [network.to(places[0]), *others]


def spread(function, items, networks):
    """Like map, on several networks at once, in a thread for each: torch lets other threads run while it computes.

    Args:
        function: of a network, which no other call has meanwhile, and an item.
        items: iterable, of which only a few are taken ahead of the results.
        networks: replicas of one network; if there is only one, all is done in this thread.

    Yields:
        results in the order of the items, whichever network they are from.
    """
    if len(networks) == 1:
        yield from (function(networks[0], item) for item in items)
        return
    idle = queue.SimpleQueue()
    for network in networks:
        idle.put(network)

    def on_an_idle_one(item):
        network = idle.get()
        try:
            return function(network, item)
        finally:
            idle.put(network)

    pool = ThreadPoolExecutor(len(networks))
    try:
        yield from submitted(pool, on_an_idle_one, items, 2 * len(networks))
    finally:
        pool.shutdown(cancel_futures=True)  # interrupted, a run does not wait for more than the batches in hand


def batches(tokenizer, encoded, tokens):
    """Batches of texts of like length, the longest first: if memory does not suffice, that shows at once.

    Args:
        tokenizer: pads.
        encoded: what it made of N texts, not padded.
        tokens: the most in a batch, padding counted (a longer text makes a batch by itself).

    Yields:
        (positions among the N, its dict of tensors).
    """
    lengths = [len(ids) for ids in encoded["input_ids"]]
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    while order:
        size = max(1, tokens // lengths[order[0]])
        positions, order = order[:size], order[size:]
        chosen = {key: [values[position] for position in positions] for key, values in encoded.items()}
        yield positions, tokenizer.pad(chosen, return_tensors="pt")
