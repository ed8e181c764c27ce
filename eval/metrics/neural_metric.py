"""Base class of BLEURT and COMET: the mean of a neural network's scores."""

import importlib.metadata
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import FloatArray, MeanMetric, Segment
from posnet_eval.metrics.networks import devices, map_on_networks, replicas
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.optional_dependencies import how_to_install

SCALE = 100  # papers print these scores times 100
GROUP = {"cpu": 64, "cuda": 1024}  # segments scored together; an interruption loses no more


class NeuralMetric(MeanMetric):
    """The mean of a network's scores of segments, times 100."""

    package: str  # on PyPI, which has the network
    extra: str  # of posnet's own package, which installs it

    @abstractmethod
    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Return the model's name, and {name: path} of all files that scores depend on, without loading them."""

    @abstractmethod
    def load(self) -> tuple[Any, Any]:
        """Return the network on the CPU in evaluation mode, and its tokenizer."""

    @abstractmethod
    def prepare(self, segments: Sequence[Segment]) -> Any:
        """Return what :meth:`score` needs of a group of segments, tokenized."""

    @abstractmethod
    def score(self, network: Any, prepared: Any) -> Any:
        """Return a tensor of the scores of a group of segments by one of the networks, not scaled."""

    def check_installed(self) -> None:
        """Check that the package is installed; raises :class:`Missing` if it is not."""
        try:
            importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError as error:
            raise model_files.Missing(
                f"{self.label} needs the package {self.package}, which is not installed", how_to_install(self.extra)
            ) from error

    def fetch(self) -> None:
        """Download the model, see :meth:`Metric.fetch`."""
        self.find()

    def details(self) -> dict[str, str]:
        """Return model, hash of its content, versions of packages, precision and scale."""
        if self.options.references != 1:
            raise UsageError(
                f"{self.label} takes one reference translation, {self.options.references} were given. Give one, or "
                f"leave {self.name} out of the metrics."
            )
        name, files = self.find()
        versions = {package: importlib.metadata.version(package) for package in (self.package, "transformers", "torch")}
        # Without lowercasing there is no key, so that the keys of older caches stay valid.
        case = {"case": "lc"} if self.options.lowercase else {}
        identity = {"model": name, "id": model_files.content_id(files)}
        return case | identity | versions | {"precision": "fp32", "scale": str(SCALE)}

    @cached_property
    def _loaded(self) -> tuple[list[Any], Any]:
        network, tokenizer = self.load()
        return replicas(network, devices(self.options.cpu)), tokenizer

    @property
    def networks(self) -> list[Any]:
        """The network, one replica for each device, loaded when first used."""
        return self._loaded[0]

    @property
    def tokenizer(self) -> Any:
        """The network's tokenizer, for use in one thread, loaded when first used."""
        return self._loaded[1]

    def release(self) -> None:
        """Free the network's memory for the next model."""
        self.__dict__.pop("_loaded", None)

    def statistics(self, segments: Sequence[Segment]) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """Yield positions and rows (score × 100, 1), see :meth:`Metric.statistics`; NaN stays NaN."""
        if not segments:
            return
        if self.options.lowercase:  # as sacreBLEU's metrics do it; not the source
            segments = [Segment(source, line.lower(), (known.lower(),)) for source, line, (known,) in segments]

        def longest_first(position: int) -> tuple[int, str, str]:
            source, _, (reference,) = segments[position]
            return -len(source) - len(reference), source, reference  # translations of one source are neighbors

        order = sorted(range(len(segments)), key=longest_first)
        size = GROUP[self.networks[0].device.type]
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        prepared = (self.prepare([segments[position] for position in group]) for group in groups)
        for group, scores in zip(groups, map_on_networks(self.score, prepared, self.networks), strict=True):
            yield group, np.stack([SCALE * scores.double().cpu().numpy(), np.ones(len(group))], axis=1)
