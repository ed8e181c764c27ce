"""Base class of BLEURT and COMET: the mean of a network's scores; safe and quiet loading, replicas, batches."""

import contextlib
import copy
import logging
import os
import pickle
import re
import threading
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import FloatArray, MeanMetric, Segment
from posnet_fairseq.shared.errors import UsageError, counted, option
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.files import check_file, utf8_name
from posnet_fairseq.shared.processes import submitted
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.records import installed_versions

if TYPE_CHECKING:
    import torch

Batches = list[tuple[list[int], Any]]  # positions among encoded texts, and their tensors by name

SCALE = 100  # papers print these scores times 100
GROUP = {"cpu": 64, "cuda": 1024}  # segments scored together; an interruption loses no more
_POSITION_IDS = "position_ids"  # buffers 0, 1, 2, ..., which newer versions of transformers do not store


class NeuralMetric(MeanMetric):
    """The mean of a network's scores of segments, times 100."""

    package: str  # on PyPI, which has the network
    extra: str  # of posnet's own package, which installs it
    named_by: tuple[str, ...]  # options that name the model, and its encoder
    tokenizer: Any  # of the network, for use in one thread
    one_reference = True

    @property
    def requested_model(self) -> str:
        """Name or absolute folder of the model, and of its encoder if one was named."""
        given = (getattr(self.options, name) for name in self.named_by)
        named = [(name, model_files.local_folder(name)) for name in given if name]
        return shown(" with encoder ".join(str(path.resolve()) if path.is_dir() else name for name, path in named))

    @abstractmethod
    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Return the model's name, and {name: path} of all files that scores depend on, without loading them."""

    @abstractmethod
    def load(self) -> tuple[Any, Any]:
        """Return the network on the CPU in evaluation mode, and its tokenizer."""

    @abstractmethod
    def prepare(self, segments: Sequence[Segment]) -> tuple[Any, Iterable[int]]:
        """Return what :meth:`score` needs of a group of segments, tokenized, and positions of those that were cut."""

    def score(self, network: Any, prepared: Any) -> Any:
        """Return a tensor of the scores of a group of segments by one of the networks, not scaled."""
        import torch

        scores = torch.empty(sum(len(positions) for positions, _ in prepared))
        with torch.inference_mode():
            for positions, inputs in prepared:
                scores[positions] = self.scores_of(network(**inputs.to(network.device))).cpu()
        return scores

    @staticmethod
    def scores_of(output: Any) -> Any:
        """Return the (N,) scores in what the network returns for a batch; only :meth:`score` calls it."""
        raise NotImplementedError

    def check_installed(self) -> None:
        """Check that the package is installed; raises :class:`Missing` if it is not."""
        if not installed_versions(self.package):
            what = f"{self.label} needs the package {self.package}, which is not installed"
            raise model_files.Missing(what, how_to_install(self.extra))

    def fetch(self, download: bool = True) -> None:
        """Check that the package is there, and the model, see :meth:`Metric.fetch`."""
        self.find() if download else self.check_installed()

    def details(self) -> dict[str, str]:
        """Return model, hash of its content, versions of packages, precision and scale."""
        name, files = self.find()
        versions = installed_versions(self.package, "transformers", "torch")
        # Without lowercasing there is no key, so that the keys of older caches stay valid.
        case = {"case": "lc"} if self.options.lowercase else {}
        identity = {"model": name, "id": model_files.content_id(files)}
        return case | identity | versions | {"precision": "fp32", "scale": str(SCALE)}

    @cached_property
    def networks(self) -> list[Any]:
        """The network, one replica for each device, loaded when first used, with its :attr:`tokenizer`."""
        network, self.tokenizer = self.load()
        first, *others = devices(self.options.device)
        # One after the other: the CPU never holds more than two.
        replicas = [copy.deepcopy(network).to(device) for device in others]
        return [network.to(first), *replicas]

    def release(self) -> None:
        """Free the network's memory for the next model."""
        for name in ("networks", "tokenizer"):
            self.__dict__.pop(name, None)

    def statistics(self, segments: Sequence[Segment]) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """Yield positions and rows (score × 100, 1), see :meth:`Metric.statistics`; NaN stays NaN."""
        if self.options.lowercase:  # as sacreBLEU's metrics do it; not the source
            segments = [Segment(source, line.lower(), tuple(map(str.lower, known))) for source, line, known in segments]

        def longest_first(position: int) -> tuple[int, str, tuple[str, ...]]:
            source, _, references = segments[position]
            return -len(source) - sum(map(len, references)), source, references  # translations of one are neighbors

        order = sorted(range(len(segments)), key=longest_first)
        size = min(GROUP[self.networks[0].device.type], -(-len(order) // len(self.networks)) or 1)  # all have work
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        self.cut.clear()

        def prepared(group: Sequence[int]) -> Any:
            found, cut = self.prepare([segments[position] for position in group])
            self.cut.update(group[place] for place in cut)
            return found

        for group, scores in zip(groups, self._scores(map(prepared, groups)), strict=True):
            yield group, np.stack([SCALE * scores.double().cpu().numpy(), np.ones(len(group))], axis=1)

    def _scores(self, prepared: Iterable[Any]) -> Iterator[Any]:
        """Yield the scores of groups in their order, computed on replicas, with only a few groups taken ahead."""
        count = len(self.networks)
        if count == 1:
            yield from (self.score(self.networks[0], group) for group in prepared)
            return
        # Threads suffice: torch releases the interpreter's lock.
        of_thread, free = threading.local(), list(self.networks)
        pool = ThreadPoolExecutor(count, initializer=lambda: setattr(of_thread, "network", free.pop(0)))
        try:
            yield from submitted(pool, lambda group: self.score(of_thread.network, group), prepared, 2 * count)
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupted run waits for no more than what is being computed

    def encoded(self, longest: int, *texts: Sequence[str]) -> tuple[Mapping[str, Sequence[Sequence[int]]], list[int]]:
        """Return N texts, or pairs of texts, as at most `longest` tokens, and which of them have more."""
        found = self.tokenizer(*texts, truncation=True, max_length=longest)
        full = [place for place, ids in enumerate(found["input_ids"]) if len(ids) >= longest]
        if not full:
            return found, []
        whole = self.tokenizer(*([side[place] for place in full] for side in texts), truncation=False)
        return found, [place for place, ids in zip(full, whole["input_ids"], strict=True) if len(ids) > longest]

    def batches(self, encoded: Mapping[str, Sequence[Sequence[int]]], tokens: Mapping[str, int]) -> Batches:
        """Return batches of texts of similar length, the longest first: a lack of memory shows at once.

        The limit on a batch's tokens, padding included, depends on the device; a longer text is a batch of its own.
        """
        most = tokens[self.networks[0].device.type]
        lengths = [len(ids) for ids in encoded["input_ids"]]
        order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
        found = []
        while order:
            size = max(1, most // lengths[order[0]])
            positions, order = order[:size], order[size:]
            chosen = {key: [values[position] for position in positions] for key, values in encoded.items()}
            found.append((positions, self.tokenizer.pad(chosen, return_tensors="pt")))
        return found


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
                with utf8_name(path) as name:
                    return load_file(name)
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            if unsafe := re.search(r"GLOBAL (\S+)", str(error)):
                raise UsageError(
                    f"{path} was refused: it holds more than plain weights ({unsafe[1]}), which could run code when "
                    f"loaded. {if_unsafe}"
                ) from error
            raise


def load_weights(network: "torch.nn.Module", weights: Any, path: Path) -> None:
    """Load a state dict, which must have all of a network's weights; superfluous ones are ignored."""
    try:
        missing = network.load_state_dict(weights, strict=False).missing_keys
        missing = [name for name in missing if not name.endswith(_POSITION_IDS)]
        problem = f"lacks {len(missing)} of the model's weights, such as {missing[0]}" if missing else ""
    except (RuntimeError, TypeError) as error:
        problem = f"does not fit the model's configuration: {str(error).strip().splitlines()[-1].strip().rstrip('.')}"
    if problem:  # random numbers in place of weights would give scores without a meaning
        raise UsageError(f"{path} {problem}. Download both again.")


def devices(given: str | None) -> list["torch.device"]:
    """Return the devices that are meant: by ``cuda`` all visible GPUs, by None these, or the CPU if there are none."""
    import torch

    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if given == "cpu" or not (given or gpus):
        return [torch.device("cpu")]
    found = [gpu for gpu in gpus if given in (None, "cuda", str(gpu))]
    if not found:
        raise UsageError(
            f"{option('device')} {given}: this machine has {counted(len(gpus), 'GPU')}. Give one of them, or cpu."
        )
    return found
