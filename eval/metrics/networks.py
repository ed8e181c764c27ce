"""Networks of metrics: safe and quiet loading, replicas on several devices, batches of texts of similar length."""

import contextlib
import copy
import logging
import os
import pickle
import queue
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file
from posnet_fairseq.shared.processes import submitted

if TYPE_CHECKING:
    import torch

    from posnet_eval.metrics.base import MetricOptions

Network = TypeVar("Network")
Item = TypeVar("Item")
Result = TypeVar("Result")

_POSITION_IDS = "position_ids"  # buffers 0, 1, 2, ..., which newer versions of transformers do not store


@contextlib.contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Suppress what libraries print and log beside errors while they are imported and load models.

    Args:
        loggers: names of loggers to which the libraries give a lower level.
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
            # comet's import makes the root logger print the messages of every library
            root.setLevel(level)
            root.handlers[:] = handlers
            for name in loggers:
                logging.getLogger(name).setLevel(logging.ERROR)


@contextlib.contextmanager
def reading(folder: Path, what: str) -> Iterator[None]:
    """Name the damaged configuration or tokeniser, for which the libraries raise errors of many kinds.

    Args:
        folder: folder of the model.
        what: what is being read.

    Raises:
        UsageError: reading it failed.
    """
    try:
        yield
    except (UsageError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise UsageError(f"{what} in {folder} cannot be read ({reason}). Copy or download the folder again.") from error


def read_weights(path: Path, if_unsafe: str) -> Any:
    """Return the content of a file of weights, read as data.

    Args:
        path: file in the format of safetensors or torch.save.
        if_unsafe: advice for a file that could run code, the end of the error's text.

    Raises:
        UsageError: the file could run code, or is damaged.
    """
    import torch
    from safetensors.torch import load_file

    check_file(path)
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


def load_weights(network: "torch.nn.Module", weights: object, path: Path) -> None:
    """Load weights into a network, which must get all of its weights; superfluous ones are ignored.

    Args:
        network: module to be filled.
        weights: state dict.
        path: file that the weights were read from.

    Raises:
        UsageError: weights are missing or have another shape.
    """
    if not isinstance(weights, dict):
        raise UsageError(f"{path} holds no weights of a model. Download it again.")
    try:
        missing = network.load_state_dict(weights, strict=False).missing_keys
    except RuntimeError as error:
        difference = str(error).strip().split("\n")[-1].strip()
        raise UsageError(f"{path} does not fit the model's configuration: {difference} Download both again.") from error
    missing = [name for name in missing if not name.endswith(_POSITION_IDS)]
    if missing:
        raise UsageError(
            f"{path} lacks {len(missing)} of the model's weights, such as {missing[0]}. With random numbers in their "
            "place scores would mean nothing; download the model again."
        )


def devices(options: "MetricOptions") -> list["torch.device"]:
    """Return all visible GPUs, or the CPU if there are none or options.cpu is set."""
    import torch

    if options.cpu or not torch.cuda.is_available():
        return [torch.device("cpu")]
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]


def replicas(network: "torch.nn.Module", places: Sequence["torch.device"]) -> list["torch.nn.Module"]:
    """Return a replica of a network for each device; the first one is the network itself.

    Args:
        network: module on the CPU.
        places: devices.
    """
    # One after the other: the CPU never holds more than two.
    others = [copy.deepcopy(network).to(place) for place in places[1:]]
    return [network.to(places[0]), *others]


def map_on_networks(
    function: Callable[[Network, Item], Result], items: Iterable[Item], networks: Sequence[Network]
) -> Iterator[Result]:
    """Map a function over items on several replicas of a network, with one thread for each.

    Threads suffice because torch releases the interpreter's lock while it computes.

    Args:
        function: called with a network, which no other call uses at that time, and an item.
        items: items, of which only a few are taken ahead of the results.
        networks: replicas of one network; with a single one everything runs in this thread.

    Yields:
        results in the order of the items.
    """
    if len(networks) == 1:
        yield from (function(networks[0], item) for item in items)
        return
    idle: queue.SimpleQueue[Network] = queue.SimpleQueue()
    for network in networks:
        idle.put(network)

    def on_idle_network(item: Item) -> Result:
        network = idle.get()
        try:
            return function(network, item)
        finally:
            idle.put(network)

    pool = ThreadPoolExecutor(len(networks))
    try:
        yield from submitted(pool, on_idle_network, items, 2 * len(networks))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted run waits for no more than the batches being computed


def batches(
    tokenizer: Any, encoded: Mapping[str, Sequence[Sequence[int]]], tokens: int
) -> Iterator[tuple[list[int], Any]]:
    """Batch texts of similar length, the longest first, so that a lack of memory shows at once.

    Args:
        tokenizer: tokeniser of transformers, which pads.
        encoded: its encoding of N texts, not padded.
        tokens: largest number of tokens in a batch, with padding; a longer text is a batch of its own.

    Yields:
        positions among the N texts, and the batch's tensors by name.
    """
    lengths = [len(ids) for ids in encoded["input_ids"]]
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    while order:
        size = max(1, tokens // lengths[order[0]])
        positions, order = order[:size], order[size:]
        chosen = {key: [values[position] for position in positions] for key, values in encoded.items()}
        yield positions, tokenizer.pad(chosen, return_tensors="pt")
