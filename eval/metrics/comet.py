"""COMET, which compares embeddings of source, translation and reference, and COMETKiwi, which reads no reference."""

import functools
import importlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import FloatArray, MetricOptions, Segment
from posnet_eval.metrics.neural_metric import SCALE, Batches, NeuralMetric, load_weights, quiet, read_weights, reading
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
KIWI_MODEL = replace(
    MODEL, what="a COMETKiwi model", option="comet_kiwi_model", encoder=("microsoft/infoxlm-large", ENCODER)
)
_XLMR = ("XLM-RoBERTa", "XLM-RoBERTa-XL")
_UNSAFE = (
    'If you trust its origin, save it again as plain weights: docs/scoring.md, "A COMET checkpoint that is '
    'refused", has the command.'
)

_TOKENS = {"cpu": 1024, "cuda": 8192}  # in a batch
_AT_ONCE = 4096  # triples of embeddings that are compared


def import_models() -> Any:
    """Import the library's module of models."""
    # unbabel-comet 2.2.7 imports a sequence with a hash that Python 3.14 no longer has.
    vars(functools).setdefault("_HashedSeq", tuple)
    with quiet("pytorch_lightning", "comet"):
        return importlib.import_module("comet.models")


class _CometMetric(NeuralMetric):
    """A model of unbabel-comet.

    On several GPUs the library's ``predict`` starts the calling program once more for each and ends these with exit().
    ``load_from_checkpoint`` leaves random numbers where weights are missing.
    """

    package, extra = "unbabel-comet", "comet"
    needs_source = True
    library_class: str
    model_kind: model_files.ModelKind
    supported: tuple[tuple[str, Any, tuple[Any, ...]], ...]  # settings, values where they are missing, supported ones

    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Find the model's files, see :meth:`NeuralMetric.find`."""
        self.check_installed()
        model, encoder = (getattr(self.options, name) for name in self.named_by)
        name, files = model_files.find(model, self.model_kind, download)
        encoder = encoder or self._settings(files["hparams.yaml"]).get("pretrained_model")
        assert self.model_kind.encoder
        usual, kind = self.model_kind.encoder
        _, of_encoder = model_files.find(encoder or usual, kind, download)
        return name, files | {f"encoder/{file}": path for file, path in of_encoder.items()}

    def load(self) -> tuple[Any, Any]:
        """Return the library's model and tokenizer, see :meth:`NeuralMetric.load`."""
        _, files = self.find()
        checkpoint, encoder = files[_CHECKPOINT], files["encoder/config.json"].parent
        settings = self._settings(files["hparams.yaml"])
        network = getattr(import_models(), self.library_class)
        content = read_weights(checkpoint, _UNSAFE)
        with reading(checkpoint.parent, checkpoint.name):
            weights, stored = content["state_dict"], content["hyper_parameters"]
            known = inspect.signature(network).parameters
            arguments = {name: value for name, value in stored.items() if name in known}
        # The one setting of hparams.yaml that the library obeys marks models trained with a broken sparsemax.
        if settings.get("layer_transformation") == "sparsemax_patch":
            arguments["layer_transformation"] = "softmax"
        local = {"pretrained_model": str(encoder), "load_pretrained_weights": False, "local_files_only": True}
        with quiet(), reading(encoder, "configuration or tokenizer of the encoder"):
            model = network(**arguments | local)
        load_weights(model, weights, checkpoint)
        return model.eval(), model.encoder.tokenizer

    def tokenized(self, segments: Sequence[Sequence[str]]) -> tuple[Any, list[list[int]], list[int]]:
        """Return distinct texts as tokens, the places of each segment's texts among them, and which segments are cut.

        As the encoder's own prepare_sample, except that texts are batched before they are padded.
        """
        places: dict[str, int] = {}
        chosen = [[places.setdefault(text, len(places)) for text in texts] for texts in segments]
        encoded, cut = self.encoded(self.networks[0].encoder.max_positions - 2, list(places))
        return encoded, chosen, [number for number, of in enumerate(chosen) if not set(of).isdisjoint(cut)]

    def _settings(self, path: Path) -> dict[str, Any]:
        """Return the content of hparams.yaml, of a supported kind of model."""
        import yaml

        with reading(path.parent, path.name):
            settings = dict(yaml.load(path.read_text(encoding="utf-8"), PlainLoader))
        for key, usual, supported in self.supported:
            if settings.get(key, usual) not in supported:
                raise UsageError(
                    f"{path} describes a model with {key} {settings.get(key)!r}. Supported are "
                    f"{', '.join(map(str, supported))}; give {option(self.model_kind.option)} one with a {key} of "
                    f"these, such as {getattr(MetricOptions, self.model_kind.option)}."
                )
        return settings


class Comet(_CometMetric):
    """COMET, which compares embeddings of source, translation and reference; each text of a group is encoded once.

    Rei et al. (2020), arXiv:2009.09025.

    The library's ``predict`` encodes a text for each segment that has it. Three translations of 64 sentences, scored on
    a CPU by 4 layers of 192 features, took 3.0 CPU seconds with it and 1.4 here, with scores that agree within 2e-5.
    ``set_embedding_cache`` does not help (3.0 s, no hit): in version 2.2.7 a key is a whole batch.
    """

    name, label = "comet", "COMET"
    named_by = ("comet_model", "comet_encoder")
    library_class = "RegressionMetric"
    model_kind = MODEL
    supported = (
        ("class_identifier", None, ("regression_metric",)),
        ("encoder_model", "XLM-RoBERTa", (*_XLMR, "BERT")),  # whose tokenizer is in their folder
    )

    def prepare(self, segments: Sequence[Segment]) -> tuple[tuple[Batches, list[list[int]]], list[int]]:
        """Return batches of distinct texts, the places of source, hypothesis and reference among them, and what is cut.

        A segment is cut if any of its texts is.
        """
        encoded, triples, are_cut = self.tokenized([(source, line, known) for source, line, (known,) in segments])
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
            parts = torch.tensor(triples).split(_AT_ONCE)
            return torch.cat([network.estimate(*embeddings[part.T]).score for part in parts])

    def utilities(self, sources: Sequence[str], candidates: Sequence[Sequence[str]]) -> Iterator[FloatArray]:
        """Yield (K, K) scores × 100 of the K candidates of each line against each of them as the reference.

        Each distinct text of all these lines is encoded once (once on each device). :attr:`cut` has positions of lines.
        """
        groups = [group for group in np.array_split(np.arange(len(sources)), len(self.networks)) if len(group)]
        self.cut.clear()

        def prepared(group: Sequence[int]) -> Any:
            pairs = [(n, one, known) for n in group for one, known in product(candidates[n], repeat=2)]
            found, cut = self.prepare([Segment(sources[n], one, (known,)) for n, one, known in pairs])
            self.cut.update(pairs[place][0] for place in cut)
            return found

        scores = np.concatenate([SCALE * found.double().cpu().numpy() for found in self._scores(map(prepared, groups))])
        sizes = [len(texts) for texts in candidates]
        ends = np.cumsum(np.square(sizes))
        for size, found in zip(sizes, np.split(scores, ends[:-1]), strict=True):
            yield found.reshape(size, size)


class CometKiwi(_CometMetric):
    """COMETKiwi, which reads a translation and its source as one text: Rei et al. (2022), arXiv:2209.06243."""

    name, label = "comet-kiwi", "COMETKiwi"
    named_by = ("comet_kiwi_model", "comet_encoder")
    needs_reference = one_reference = False
    library_class = "UnifiedMetric"
    model_kind = KIWI_MODEL
    supported = (
        ("class_identifier", None, ("unified_metric",)),
        ("input_segments", None, (["mt", "src"], ["src", "mt"])),
        ("encoder_model", "XLM-RoBERTa", _XLMR),
    )

    def details(self) -> dict[str, str]:
        """Return details, see :meth:`NeuralMetric.details`, and that no reference is read."""
        return {"nrefs": "0"} | super().details()

    def prepare(self, segments: Sequence[Segment]) -> tuple[Any, list[int]]:
        """Return batches of translations with their sources, cut where the library cuts them, and which are cut."""
        encoded, pairs, are_cut = self.tokenized([(segment.hypothesis, segment.source) for segment in segments])
        most = self.networks[0].encoder.max_positions
        inner = [ids[1:-1] for ids in encoded["input_ids"]]
        joined = [self.tokenizer.build_inputs_with_special_tokens(*(inner[place] for place in pair)) for pair in pairs]
        too_long = [number for number, ids in enumerate(joined) if len(ids) > most]
        return self.batches({"input_ids": [ids[:most] for ids in joined]}, _TOKENS), [*are_cut, *too_long]

    @staticmethod
    def scores_of(output: Any) -> Any:
        """Return the (N,) scores in what the network returns."""
        return output.score
