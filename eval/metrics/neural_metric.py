"""What the two metrics that are neural networks have in common."""

import importlib.metadata
from abc import abstractmethod
from functools import cached_property

import numpy as np

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import MeanMetric
from posnet_eval.metrics.networks import devices, replicas
from posnet_fairseq.shared.errors import UsageError

SCALE = 100  # papers print these scores times 100


class NeuralMetric(MeanMetric):
    """The mean of what a network says of segments, times 100.

    Attributes:
        package: on PyPI, that the network comes from.
        extra: of posnet's own package, that installs it.
    """

    package: str
    extra: str

    @abstractmethod
    def find(self, download=True):
        """Find the models without loading them.

        Args:
            download: whether they may be fetched from the hub.

        Returns:
            the model's name, and {name: path} of all files that scores depend on.

        Raises:
            UsageError: something is missing.
        """

    @abstractmethod
    def score(self, segments):
        """Yields (positions, sequence of scores, not scaled) of a list of segments."""

    @abstractmethod
    def load(self):
        """The network on the CPU, ready to score, and its tokeniser."""

    def check_installed(self):
        """Refuse to go on without the package."""
        try:
            importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError as error:
            raise model_files.Missing(
                f"{self.label} needs the package {self.package}, which is not installed",
                f"Run pip install -e '.[{self.extra}]' in the posnet folder.",
            ) from error

    def details(self):
        """Model, hash of its content, versions of packages, precision and scale."""
        return dict(self._details)

    @cached_property
    def _details(self):
        self.check_installed()
        if self.options.references != 1:
            raise UsageError(
                f"{self.label} takes one reference translation, {self.options.references} were given. Give one, or "
                f"leave {self.name} out of the metrics."
            )
        name, files = self.find()
        versions = {package: importlib.metadata.version(package) for package in (self.package, "transformers", "torch")}
        # Of text as it is nothing is said, as it never was: what has been computed of it is found again.
        case = {"case": "lc"} if self.options.lowercase else {}
        return case | {
            "model": name,
            "id": model_files.content_id(files),
            **versions,
            "precision": "fp32",
            "scale": str(SCALE),
        }

    @cached_property
    def _loaded(self):
        self.check_installed()
        network, tokenizer = self.load()
        return replicas(network, devices(self.options)), tokenizer

    @property
    def networks(self):
        """The network once for each device, loaded when first used."""
        return self._loaded[0]

    @property
    def tokenizer(self):
        """The network's, for one thread, loaded when first used."""
        return self._loaded[1]

    def release(self):
        """Make room for the next model."""
        self.__dict__.pop("_loaded", None)

    def statistics(self, segments):
        """Rows of (score × 100, 1); NaN stays NaN."""
        if not segments:
            return
        if self.options.lowercase:
            segments = list(map(_lowercase, segments))
        for positions, scores in self.score(segments):
            yield positions, np.stack([SCALE * np.asarray(scores, np.float64), np.ones(len(positions))], axis=1)


def _lowercase(segment):
    """A segment whose translations are lower-cased, as sacreBLEU's metrics do it; the source stays."""
    return segment._replace(
        hypothesis=segment.hypothesis.lower(), references=tuple(line.lower() for line in segment.references)
    )
