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

Network = TypeVar("Network")
Item = TypeVar("Item")
Result = TypeVar("Result")

_POSITION_IDS = "position_ids"  # buffers 0, 1, 2, ..., which newer versions of transformers do not store


@contextlib.contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Suppress what libraries print and log, except errors, while they load; some loggers stay at ERROR afterwards."""
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
    """Raise a UsageError for a damaged file of a model, for which the libraries raise errors of many kinds.

    Their own text is not shown: torch advises to turn off the check that keeps code in files from running.
    """
    try:
        yield
    except (UsageError, MemoryError):
        raise
    except Exception as error:
        kind = type(error).__name__
        raise UsageError(f"{what} in {folder} cannot be read ({kind}). Copy or download the folder again.") from error


def read_weights(path: Path, if_unsafe: str) -> Any:
    """Return the content of a file of safetensors or torch.save, read as data; `if_unsafe` advises if it has code."""
    import torch
    from safetensors.torch import load_file

    check_file(path)
    with reading(path.parent, path.name), quiet():
        try:
            if path.suffix == ".safetensors":
                return load_file(path)
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            unsafe = re.search(r"GLOBAL (\S+)", str(error))
            if not unsafe:
                raise
            raise UsageError(
                f"{path} was refused: it holds more than plain weights ({unsafe[1]}), which could run code when "
                f"loaded. {if_unsafe}"
            ) from error


def load_weights(network: "torch.nn.Module", weights: Any, path: Path) -> None:
    """Load a state dict, which must have all of a network's weights; superfluous ones are ignored."""
    try:
        missing = network.load_state_dict(weights, strict=False).missing_keys
    except (RuntimeError, TypeError) as error:
        difference = str(error).strip().split("\n")[-1].strip()
        raise UsageError(f"{path} does not fit the model's configuration: {difference} Download both again.") from error
    missing = [name for name in missing if not name.endswith(_POSITION_IDS)]
    if missing:
        raise UsageError(
            f"{path} lacks {len(missing)} of the model's weights, such as {missing[0]}. With random numbers in their "
            "place scores would mean nothing; download the model again."
        )


def devices(cpu: bool) -> list["torch.device"]:
    """Return all visible GPUs, or the CPU if there are none or it is asked for."""
    import torch

    count = 0 if cpu or not torch.cuda.is_available() else torch.cuda.device_count()
    return [torch.device("cuda", number) for number in range(count)] or [torch.device("cpu")]


def replicas(network: "torch.nn.Module", places: Sequence["torch.device"]) -> list["torch.nn.Module"]:
    """Return a replica of a network on the CPU for each device; the first one is the network itself."""
    # One after the other: the CPU never holds more than two.
    others = [copy.deepcopy(network).to(place) for place in places[1:]]
    return [network.to(places[0]), *others]


def map_on_networks(
    function: Callable[[Network, Item], Result], items: Iterable[Item], networks: Sequence[Network]
) -> Iterator[Result]:
    """Yield function(network, item) in the order of the items, computed on replicas with one thread for each.

    Only a few items are taken ahead of the results. Threads suffice: torch releases the interpreter's lock.
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
        pool.shutdown(cancel_futures=True)  # an interrupted run waits for no more than what is being computed


def batches(tokenizer: Any, encoded: Mapping[str, Sequence[Sequence[int]]], tokens: int) -> list[tuple[list[int], Any]]:
    """Return batches of texts of similar length: their positions among the encoded texts, and padded tensors by name.

    A batch has at most so many tokens, with padding; a longer text is a batch of its own. The longest come first, so
    that a lack of memory shows at once.
    """
    lengths = [len(ids) for ids in encoded["input_ids"]]
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    found = []
    while order:
        size = max(1, tokens // lengths[order[0]])
        positions, order = order[:size], order[size:]
        chosen = {key: [values[position] for position in positions] for key, values in encoded.items()}
        found.append((positions, tokenizer.pad(chosen, return_tensors="pt")))
    return found
