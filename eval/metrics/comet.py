"""COMET: a network that compares source, translation and reference by their sentence embeddings (arXiv:2009.09025)."""

import functools
import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import Segment
from posnet_eval.metrics.neural_metric import Batches, NeuralMetric, load_weights, quiet, read_weights, reading
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.schema import PlainLoader

_CHECKPOINT = "checkpoints/model.ckpt"
ENCODER = model_files.ModelKind(
    what="the encoder of a COMET model",
    option="comet_encoder",
    owner="",
    files=("config.json", *model_files.TOKENIZER),
    needed=(("config.json",), ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt")),
)
MODEL = model_files.ModelKind(
    what="a COMET model",
    option="comet_model",
    owner="Unbabel",
    files=("hparams.yaml", _CHECKPOINT),
    needed=(("hparams.yaml",), (_CHECKPOINT,)),
    encoder=("xlm-roberta-large", ENCODER),
)
# Settings, their values where they are missing, and the supported ones.
_SUPPORTED = (
    ("class_identifier", None, ("regression_metric",)),
    ("encoder_model", "XLM-RoBERTa", ("XLM-RoBERTa", "XLM-RoBERTa-XL", "BERT")),  # whose tokenizer is in their folder
)
_UNSAFE = (
    'If you trust its origin, save it again as plain weights: docs/scoring.md, "A COMET checkpoint that is '
    'refused", has the command.'
)

_TOKENS = {"cpu": 1024, "cuda": 8192}  # in a batch


def import_models() -> Any:
    """Import the library's module of models."""
    # unbabel-comet 2.2.7 imports a sequence with a hash that Python 3.14 no longer has.
    vars(functools).setdefault("_HashedSeq", tuple)
    with quiet("pytorch_lightning", "comet"):
        return importlib.import_module("comet.models")


class Comet(NeuralMetric):
    """COMET of unbabel-comet that reads source, translation and reference; encodes each text of a group once.

    The library's ``predict`` encodes a text for each segment that has it. Three translations of 64 sentences, scored on
    a CPU by 4 layers of 192 features, took 3.0 CPU seconds with it and 1.4 here, with scores that agree within 2e-5.
    ``set_embedding_cache`` does not help (3.0 s, no hit): in version 2.2.7 a key is a whole batch. On several GPUs
    ``predict`` starts the calling program once more for each and ends these with exit(). ``load_from_checkpoint``
    leaves random numbers where weights are missing.
    """

    name, label = "comet", "COMET"
    package, extra = "unbabel-comet", "comet"
    needs_source = True

    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Find the model's files, see :meth:`NeuralMetric.find`."""
        self.check_installed()
        name, files = model_files.find(self.options.comet_model, MODEL, download)
        encoder = self.options.comet_encoder or _settings(files["hparams.yaml"]).get("pretrained_model")
        _, of_encoder = model_files.find(encoder or "xlm-roberta-large", ENCODER, download)
        return name, files | {f"encoder/{file}": path for file, path in of_encoder.items()}

    def load(self) -> tuple[Any, Any]:
        """Return the library's model and tokenizer, see :meth:`NeuralMetric.load`."""
        _, files = self.find()
        checkpoint, encoder = files[_CHECKPOINT], files["encoder/config.json"].parent
        settings = _settings(files["hparams.yaml"])
        library = import_models()
        content = read_weights(checkpoint, _UNSAFE)
        with reading(checkpoint.parent, checkpoint.name):
            weights, stored = content["state_dict"], content["hyper_parameters"]
            known = inspect.signature(library.RegressionMetric).parameters
            arguments = {name: value for name, value in stored.items() if name in known}
        # The one setting of hparams.yaml that the library obeys marks models trained with a broken sparsemax.
        if settings.get("layer_transformation") == "sparsemax_patch":
            arguments["layer_transformation"] = "softmax"
        local = {"pretrained_model": str(encoder), "load_pretrained_weights": False, "local_files_only": True}
        with quiet(), reading(encoder, "configuration or tokenizer of the encoder"):
            model = library.RegressionMetric(**arguments | local)
        load_weights(model, weights, checkpoint)
        return model.eval(), model.encoder.tokenizer

    def prepare(self, segments: Sequence[Segment]) -> tuple[tuple[Batches, list[list[int]]], list[int]]:
        """Return batches of distinct texts, the places of source, hypothesis and reference among them, and what is cut.

        A segment is cut if any of its texts is.
        """
        places: dict[str, int] = {}
        triples = [
            [places.setdefault(text, len(places)) for text in (source, hypothesis, reference)]
            for source, hypothesis, (reference,) in segments
        ]
        # As the encoder's own prepare_sample, except that texts are batched before they are padded.
        longest = self.networks[0].encoder.max_positions - 2
        encoded, cut = self.encoded(longest, list(places))
        are_cut = [number for number, triple in enumerate(triples) if not set(triple).isdisjoint(cut)]
        return (self.batches(encoded, _TOKENS), triples), are_cut

    def score(self, network: Any, prepared: tuple[Batches, list[list[int]]]) -> Any:
        """Return (N,) scores of N segments, each text of which is encoded once."""
        import torch

        encoded, triples = prepared
        size = sum(len(positions) for positions, _ in encoded)
        embeddings = torch.empty(size, network.encoder.output_units, device=network.device)
        with torch.inference_mode():
            for positions, inputs in encoded:
                inputs = inputs.to(network.device)
                embeddings[positions] = network.get_sentence_embedding(inputs["input_ids"], inputs["attention_mask"])
            return network.estimate(*embeddings[torch.tensor(triples).T]).score


def _settings(path: Path) -> dict[str, Any]:
    """Return the content of hparams.yaml, of a supported kind of model."""
    import yaml

    with reading(path.parent, path.name):
        settings = dict(yaml.load(path.read_text(encoding="utf-8"), PlainLoader))
    for key, usual, supported in _SUPPORTED:
        if settings.get(key, usual) not in supported:
            raise UsageError(
                f"{path} describes a model with {key} {settings.get(key)!r}. Supported are {', '.join(supported)}; "
                f"give {option('comet_model')} one that reads source, translation and reference, such as "
                "Unbabel/wmt20-comet-da."
            )
    return settings
