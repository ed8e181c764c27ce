"""COMET: a network that compares source, translation and reference by their sentence embeddings (arXiv:2009.09025)."""

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posnet_eval.metrics import model_files
from posnet_eval.metrics.base import Segment
from posnet_eval.metrics.networks import batches, load_weights, map_on_networks, quiet, read_weights, reading
from posnet_eval.metrics.neural_metric import NeuralMetric
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.schema import PlainLoader

if TYPE_CHECKING:
    import torch

_CHECKPOINT = "checkpoints/model.ckpt"
ENCODER = model_files.ModelKind(
    what="the encoder of a COMET model",
    flag="--comet-encoder",
    owner="",
    files=("config.json", *model_files.TOKENIZER),
    needed=(("config.json",), ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt")),
    include="config.json 'tokenizer*' '*.model'",
)
MODEL = model_files.ModelKind(
    what="a COMET model",
    flag="--comet-model",
    owner="Unbabel",
    files=("hparams.yaml", _CHECKPOINT),
    needed=(("hparams.yaml",), (_CHECKPOINT,)),
    encoder=("xlm-roberta-large", ENCODER),
)
_ENCODERS = ("XLM-RoBERTa", "XLM-RoBERTa-XL", "BERT")  # whose tokeniser is in their own folder
_UNSAFE = (
    'If you trust its origin, save it again as plain weights: docs/scoring.md, "A COMET checkpoint that is '
    'refused", has the command.'
)

_TOKENS = {"cpu": 1024, "cuda": 8192}  # in a batch
_BYTES = {"cpu": 16_000, "cuda": 500_000}  # of new text in a group; a token has about 4


class Comet(NeuralMetric):
    """COMET of unbabel-comet that reads source, translation and one reference (wmt20-comet-da).

    Every text is encoded once; the library encodes source and reference again for every system.
    """

    name = "comet"
    label = "COMET"
    needs_source = True
    package = "unbabel-comet"
    extra = "comet"

    @property
    def requested_model(self) -> str:
        """Name or folder of the model, and of the encoder if one was named."""
        names = (self.options.comet_model, self.options.comet_encoder)
        return " with encoder ".join(model_files.absolute_name(name) for name in names if name)

    def find(self, download: bool = True) -> tuple[str, dict[str, Path]]:
        """Find the model's files, see :meth:`NeuralMetric.find`."""
        self.check_installed()
        given = self.options.comet_model
        files = MODEL.files_in(model_files.find(given, MODEL, download))
        encoder = self.options.comet_encoder or _settings(files["hparams.yaml"]).get("pretrained_model")
        found = ENCODER.files_in(model_files.find(encoder or "xlm-roberta-large", ENCODER, download))
        return model_files.short_name(given), files | {f"encoder/{name}": path for name, path in found.items()}

    def load(self) -> tuple[Any, Any]:
        """Return the library's model and tokeniser, see :meth:`NeuralMetric.load`."""
        _, files = self.find()
        checkpoint, encoder = files[_CHECKPOINT], files["encoder/config.json"].parent
        settings = _settings(files["hparams.yaml"])
        with quiet("pytorch_lightning", "comet"):
            from comet.models import RegressionMetric

        content = read_weights(checkpoint, _UNSAFE)
        if not isinstance(content, dict) or not isinstance(content.get("hyper_parameters"), dict):
            raise UsageError(f"{checkpoint} is no COMET checkpoint. Download the model again.")
        arguments = _arguments(RegressionMetric, content["hyper_parameters"], settings)
        with quiet(), reading(encoder, "configuration or tokeniser of the encoder"):
            model = RegressionMetric(
                **arguments
                | {
                    "pretrained_model": str(encoder),
                    "load_pretrained_weights": False,
                    "local_files_only": True,
                }
            )
        load_weights(model, content.get("state_dict"), checkpoint)
        return model.eval(), model.encoder.tokenizer

    def score(self, segments: Sequence[Segment]) -> Iterator[tuple[list[int], Any]]:
        """Yield positions and scores of groups of segments, small so that an interruption loses little.

        An embedding is kept until the last segment that needs it has been scored.
        """
        import torch

        network = self.networks[0]
        place = network.device
        triples = [(source, hypothesis, reference) for source, hypothesis, (reference,) in segments]
        uses = Counter(text for triple in triples for text in triple)
        groups = list(_groups(triples, _BYTES[place.type]))
        embedded = map_on_networks(_embed, self._batches(new for _, new in groups), self.networks)
        embeddings: dict[str, torch.Tensor] = {}
        for positions, new in groups:
            needed = set(new)
            while not needed <= embeddings.keys():
                embeddings |= next(embedded)
            inputs = (
                torch.stack([embeddings[triples[position][part]] for position in positions]).to(place)
                for part in range(3)
            )
            with torch.inference_mode():
                scores = network.estimate(*inputs).score
            yield positions, scores.cpu().numpy()
            texts = [text for position in positions for text in triples[position]]
            uses.subtract(texts)
            for text in set(texts):
                if not uses[text]:
                    del embeddings[text]

    def _batches(self, groups: Iterable[list[str]]) -> Iterator[tuple[list[str], Any]]:
        """Yield texts and tensors of batches, group by group."""
        limit = self.networks[0].encoder.max_positions - 2
        tokens = _TOKENS[self.networks[0].device.type]
        for texts in filter(None, groups):
            # As the encoder's own prepare_sample, except that texts are batched before they are padded.
            encoded = self.tokenizer(texts, truncation=True, max_length=limit)
            for positions, inputs in batches(self.tokenizer, encoded, tokens):
                yield [texts[position] for position in positions], inputs


def _settings(path: Path) -> dict[str, Any]:
    """Return the content of hparams.yaml."""
    import yaml

    with reading(path.parent, path.name):
        settings = yaml.load(path.read_text(encoding="utf-8"), PlainLoader)
    kind = settings.get("class_identifier") if isinstance(settings, dict) else None
    if kind != "regression_metric":
        raise UsageError(
            f"{path} describes a model of the kind {kind!r}. Only 'regression_metric' is supported, which takes "
            "source, translation and reference; give --comet-model one, such as Unbabel/wmt20-comet-da."
        )
    if settings.get("encoder_model", _ENCODERS[0]) not in _ENCODERS:
        raise UsageError(
            f"{path} names an encoder {settings['encoder_model']!r}. Supported are {', '.join(_ENCODERS)}; give "
            "--comet-model another model."
        )
    return settings


def _arguments(model: type, stored: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a model is built with.

    Args:
        model: class of the model.
        stored: settings in the checkpoint.
        settings: settings in hparams.yaml, of which the library obeys one, a mark of models trained with a broken
            sparsemax.
    """
    known = inspect.signature(model).parameters
    arguments = {name: value for name, value in stored.items() if name in known}
    if settings.get("layer_transformation") == "sparsemax_patch":
        arguments["layer_transformation"] = "softmax"
    return arguments


def _groups(triples: Sequence[tuple[str, str, str]], size: int) -> Iterator[tuple[list[int], list[str]]]:
    """Group triples, with equal sources next to each other and long ones first.

    Args:
        triples: source, hypothesis, reference.
        size: bytes of text new to a group that fill it.

    Yields:
        positions of a group, and its texts that no earlier group has.
    """

    def key(position: int) -> tuple[int, str, str]:
        source, _, reference = triples[position]
        return -len(source.encode()) - len(reference.encode()), source, reference

    seen: set[str] = set()
    group: list[int] = []
    new: list[str] = []
    weight = 0
    for position in sorted(range(len(triples)), key=key):
        unseen = [text for text in dict.fromkeys(triples[position]) if text not in seen]
        seen.update(unseen)
        group.append(position)
        new += unseen
        # 1: the embeddings of a segment take memory, too
        weight += 1 + sum(len(text.encode()) for text in unseen)
        if weight >= size:
            yield group, new
            group, new, weight = [], [], 0
    if group:
        yield group, new


def _embed(network: Any, batch: tuple[list[str], Any]) -> dict[str, "torch.Tensor"]:
    """Return {text: (D,) embedding on the CPU} of a batch."""
    import torch

    texts, inputs = batch
    inputs = inputs.to(network.device)
    with torch.inference_mode():
        rows = network.get_sentence_embedding(inputs["input_ids"], inputs["attention_mask"]).cpu()
    # cloned: a row of a tensor would keep all of it
    return {text: row.clone() for text, row in zip(texts, rows, strict=True)}
