"""BLEURT: a BERT fine-tuned to rate how well a sentence conveys the meaning of a reference (arXiv:2004.04696)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import Segment
from posnet_eval.metrics.networks import batches, load_weights, map_on_networks, quiet, read_weights, reading
from posnet_eval.metrics.neural_metric import NeuralMetric
from posnet_fairseq.shared.errors import UsageError

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MODEL = model_files.ModelKind(
    what="a BLEURT model",
    flag="--bleurt-model",
    owner="lucadiliello",
    files=("config.json", *_WEIGHTS, *model_files.TOKENIZER),
    needed=(("config.json",), _WEIGHTS, ("spm.model", "tokenizer.json", "vocab.txt")),
)

LONGEST = 512  # tokens of reference and hypothesis together
_CHUNK = 512  # pairs that are tokenised together
_TOKENS = {"cpu": 2048, "cuda": 16384}  # in a batch


class Bleurt(NeuralMetric):
    """BLEURT as ported to PyTorch in bleurt-pytorch."""

    name = "bleurt"
    label = "BLEURT"
    package = "bleurt-pytorch"
    extra = "bleurt"

    @property
    def requested_model(self) -> str:
        """Name or folder of the model."""
        return model_files.absolute_name(self.options.bleurt_model)

    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Find the model's files, see :meth:`NeuralMetric.find`."""
        self.check_installed()
        given = self.options.bleurt_model
        files = MODEL.files_in(model_files.find(given, MODEL, download=download))
        if _WEIGHTS[0] in files:
            files.pop(_WEIGHTS[1], None)  # these weights in another format
        return model_files.short_name(given), files

    def load(self) -> tuple[Any, Any]:
        """Return network and tokeniser, see :meth:`NeuralMetric.load`."""
        _, files = self.find()
        folder = files["config.json"].parent
        weights = next(files[name] for name in _WEIGHTS if name in files)
        with quiet():
            from bleurt_pytorch import BleurtConfig, BleurtForSequenceClassification
            from bleurt_pytorch.bleurt.tokenization_bleurt_fast import BleurtTokenizerFast
            from bleurt_pytorch.bleurt.tokenization_bleurt_sp import BleurtSPTokenizer

            # BleurtForSequenceClassification.from_pretrained would put random numbers where weights are missing.
            with reading(folder, "config.json"):
                config = BleurtConfig.from_pretrained(folder)
                network = BleurtForSequenceClassification(config)
            if config.num_labels != 1:
                raise UsageError(f"{folder} is no BLEURT model: it has {config.num_labels} outputs, BLEURT has one.")
            unsafe = "No BLEURT model needs that; take the file from another place."
            load_weights(network, read_weights(weights, unsafe), weights)
            with reading(folder, "the tokeniser"):
                kind = BleurtSPTokenizer if "spm.model" in files else BleurtTokenizerFast
                tokenizer = kind.from_pretrained(folder)
                if not tokenizer:  # transformers gives False for a damaged spm.model
                    raise ValueError("spm.model is damaged")
        return network.eval(), tokenizer

    def score(self, segments: Sequence[Segment]) -> Iterator[tuple[list[int], Any]]:
        """Yield positions and scores of batches of pairs of reference and hypothesis."""
        return map_on_networks(_scores, self._batches(segments), self.networks)

    def _batches(self, segments: Sequence[Segment]) -> Iterator[tuple[list[int], Any]]:
        """Yield positions and tensors of batches."""
        network, tokenizer = self.networks[0], self.tokenizer
        longest = min(LONGEST, network.config.max_position_embeddings)
        pairs = [(reference, hypothesis) for _, hypothesis, (reference,) in segments]
        order = sorted(range(len(pairs)), key=lambda position: -sum(len(text.encode()) for text in pairs[position]))
        for start in range(0, len(order), _CHUNK):
            chunk = order[start : start + _CHUNK]
            references, hypotheses = zip(*(pairs[position] for position in chunk), strict=True)
            encoded = tokenizer(list(references), list(hypotheses), truncation=True, max_length=longest)
            for positions, inputs in batches(tokenizer, encoded, _TOKENS[network.device.type]):
                yield [chunk[position] for position in positions], inputs


def _scores(network: Any, batch: tuple[list[int], Any]) -> tuple[list[int], Any]:
    """Return positions and scores of a batch."""
    import torch

    positions, inputs = batch
    with torch.inference_mode():
        scores = network(**inputs.to(network.device)).logits.squeeze(1)
    return positions, scores.cpu().numpy()
