"""BLEURT: a BERT fine-tuned to rate how well a sentence conveys the meaning of a reference (arXiv:2004.04696)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import Segment
from posnet_eval.metrics.neural_metric import Batches, NeuralMetric, load_weights, quiet, read_weights, reading

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MODEL = model_files.ModelKind(
    what="a BLEURT model",
    option="bleurt_model",
    owner="lucadiliello",
    files=("config.json", *_WEIGHTS, *model_files.TOKENIZER),
    needed=(("config.json",), _WEIGHTS, ("spm.model", "tokenizer.json", "vocab.txt")),
)

LONGEST = 512  # tokens of reference and hypothesis together
_TOKENS = {"cpu": 2048, "cuda": 16384}  # in a batch


class Bleurt(NeuralMetric):
    """BLEURT as ported to PyTorch in bleurt-pytorch."""

    name, label = "bleurt", "BLEURT"
    package, extra = "bleurt-pytorch", "bleurt"
    named_by = ("bleurt_model",)

    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Find the model's files, see :meth:`NeuralMetric.find`."""
        self.check_installed()
        name, files = model_files.find(self.options.bleurt_model, MODEL, download)
        if _WEIGHTS[0] in files:
            files.pop(_WEIGHTS[1], None)  # these weights in another format
        return name, files

    def load(self) -> tuple[Any, Any]:
        """Return network and tokenizer, see :meth:`NeuralMetric.load`."""
        _, files = self.find()
        folder = files["config.json"].parent
        weights = next(files[name] for name in _WEIGHTS if name in files)
        with quiet():
            from bleurt_pytorch import BleurtConfig, BleurtForSequenceClassification
            from bleurt_pytorch.bleurt.tokenization_bleurt_fast import BleurtTokenizerFast
            from bleurt_pytorch.bleurt.tokenization_bleurt_sp import BleurtSPTokenizer

            # BleurtForSequenceClassification.from_pretrained would put random numbers where weights are missing.
            with reading(folder, "config.json"):
                network = BleurtForSequenceClassification(BleurtConfig.from_pretrained(folder, num_labels=1))
            unsafe = "No BLEURT model needs that; take the file from another place."
            load_weights(network, read_weights(weights, unsafe), weights)
            with reading(folder, "the tokenizer"):
                kind = BleurtSPTokenizer if "spm.model" in files else BleurtTokenizerFast
                tokenizer = kind.from_pretrained(folder)
                if not tokenizer:  # transformers gives False for a damaged spm.model
                    raise ValueError("spm.model is damaged")
        return network.eval(), tokenizer

    def prepare(self, segments: Sequence[Segment]) -> tuple[Batches, list[int]]:
        """Return batches of pairs of reference and hypothesis, and which pairs are cut."""
        longest = min(LONGEST, self.networks[0].config.max_position_embeddings)
        texts = [segment.references[0] for segment in segments], [segment.hypothesis for segment in segments]
        encoded, cut = self.encoded(longest, *texts)
        return self.batches(encoded, _TOKENS), cut

    @staticmethod
    def scores_of(output: Any) -> Any:
        """Return the (N,) scores in what the network returns."""
        return output.logits.squeeze(1)
