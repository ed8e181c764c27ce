"""Whole models against fairseq's own Transformer of the same size: a training step, and decoding."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import posnet_fairseq.fairseq_plugin  # noqa: F401  (imports fairseq without scikit-learn)

# isort: split
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.optim.adam import Adam
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from posnet_fairseq.bench.printed_tables import Measurements
from posnet_fairseq.bench.timing import Time, compared, default_device
from posnet_fairseq.fairseq_plugin import chunked_loss
from posnet_fairseq.fairseq_plugin.fused_adam import FusedAdam
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import counted
from posnet_fairseq.shared.schema import check_range
from posnet_fairseq.text import synthetic
from posnet_fairseq.transformer.architectures import options_of
from posnet_fairseq.transformer.model import Transformer
from posnet_fairseq.transformer.placement import in_short
from posnet_fairseq.transformer.sizes import SIZES

BASELINE = "fairseq transformer"


def fairseq_transformer(task: SimpleNamespace, size: str, positions: int) -> TransformerModel:
    """Return fairseq's own model of a size, pre-norm, with shared embeddings."""
    shape = SIZES[size]
    options: dict[str, Any] = {
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "dropout": shape.dropout,
        "share_all_embeddings": True,
        "max_source_positions": positions,
        "max_target_positions": positions,
    }
    arguments = Namespace(**options, **shape.of_side("encoder"), **shape.of_side("decoder"))
    base_architecture(arguments)
    return TransformerModel.build_model(arguments, task)


def mixer_transformer(task: SimpleNamespace, mixer: str, size: str, positions: int) -> MixerTransformer:
    """Return posnet's model of a size, with a mixer in encoder and decoder, trained like fairseq's."""
    # fairseq's Transformer has no dropout on attention weights by default.
    return MixerTransformer.build_model(options_of(mixer, size, positions, attention_dropout=0.0), task)


def build_models(task: SimpleNamespace, mixers: Sequence[str], size: str, positions: int) -> dict[str, nn.Module]:
    """Return fairseq's model of a size, the baseline, and posnet's with each mixer, by name."""
    models: dict[str, nn.Module] = {BASELINE: fairseq_transformer(task, size, positions)}
    for mixer in mixers:
        arch = in_short(mixer.split(",")) if "," in mixer else get_mixer(mixer, "--mixers").arch
        models[f"{arch}_{size}"] = mixer_transformer(task, mixer, size, positions)
    return models


def random_sample(
    dictionary: Dictionary, sentences: int, length: int, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Return a batch as fairseq makes it, padded on the left, end symbols counted; a tenth is a token shorter."""
    tokens = torch.randint(dictionary.nspecial, len(dictionary), (sentences, length), device=device)
    tokens[:, -1] = dictionary.eos()
    source, target = tokens.clone(), tokens.flip(0)
    shorter = sentences // 10 if length > 1 else 0
    source[:shorter, 0] = dictionary.pad()
    lengths = torch.full((sentences,), length, device=device)
    lengths[:shorter] -= 1
    inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target.roll(1, dims=1)}
    return {"net_input": inputs, "target": target, "ntokens": target.numel()}


def training_step(model: nn.Module, task: SimpleNamespace, sample: dict[str, Any]) -> Callable[[], None]:
    """Return a function that does one update, as recipes train posnet's models, or as fairseq trains its own."""
    model.train()
    criterion_class, adam = (
        (chunked_loss.LabelSmoothedCrossEntropyCriterion, FusedAdam)
        if isinstance(model, MixerTransformer)
        else (LabelSmoothedCrossEntropyCriterion, Adam)
    )
    criterion = criterion_class(task, sentence_avg=False, label_smoothing=0.1)
    optimizer = adam(model.parameters(), lr=1e-4)

    def step() -> None:
        loss, size, _ = criterion(model, sample)
        optimizer.zero_grad()
        (loss / size).backward()
        optimizer.step()

    return step


def beam_search(
    model: nn.Module, task: SimpleNamespace, sample: dict[str, Any], beam: int, length: int
) -> Callable[[], list[Any]]:
    """Return a function that translates a batch to a length, as posnet-translate or fairseq-generate do."""
    model.eval()
    # Weights are random: every sentence is made as long as it may be.
    if isinstance(model, MixerTransformer | Transformer):
        settings = SearchSettings(beam=beam, max_len_b=length, min_len=length)
        search = BeamSearch([model], task.target_dictionary, settings)
        sources = [row[row != task.source_dictionary.pad()] for row in sample["net_input"]["src_tokens"]]
        return lambda: search(sources)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_b=length, min_len=length)
    inputs = {"net_input": {name: sample["net_input"][name] for name in ("src_tokens", "src_lengths")}}
    return lambda: generator.generate([model], inputs)


def measure_models(
    mixers: Sequence[str], size: str, sentences: int, length: int, beam: int, rounds: int, words: int = 3136
) -> dict[str, tuple[Time, Time]]:
    """Time an update and the decoding of sentences of a length by models of one size in turn.

    Every mixer is that of encoder and decoder. Sources, targets and translations have the same length.
    """
    check_range("--beam", beam, 1, words - 1)
    torch.manual_seed(1)
    task = synthetic.task(words)
    device = default_device()
    models = {name: model.to(device) for name, model in build_models(task, mixers, size, length + 2).items()}
    sample = random_sample(task.source_dictionary, sentences, length, device)
    steps = {name: training_step(model, task, sample) for name, model in models.items()}
    training = compared(steps, BASELINE, rounds)
    with torch.inference_mode():
        decoders = {name: beam_search(model, task, sample, beam, length) for name, model in models.items()}
        decoding = compared(decoders, BASELINE, rounds)
    return {name: (training[name], decoding[name]) for name in models}


def tables(options: Namespace) -> Iterator[Measurements | str]:
    """Yield what ``posnet-bench models`` prints."""
    mixers = options.mixers or mixer_names()
    results = measure_models(mixers, options.size, options.sentences, options.length, options.beam, options.rounds)
    title = f"{counted(options.sentences, 'sentence')} of {counted(options.length, 'token')}, beam {options.beam}"
    training_columns = {"training\ntokens/s": ",.0f", "training\n× fairseq": ".2f"}
    shown = Measurements(title, training_columns | {"decoding\nsentences/s": ".1f", "decoding\n× fairseq": ".2f"})
    for name, (training, decoding) in results.items():
        tokens, sentences = options.sentences * options.length / training.seconds, options.sentences / decoding.seconds
        shown.add(name, tokens, 1 / training.ratio, sentences, 1 / decoding.ratio)
    yield shown
    yield (
        f"Per {'second' if torch.cuda.is_available() else 'CPU second'}. posnet's models train with "
        "chunked_label_smoothed_cross_entropy and fused_adam as in recipes, and decode with posnet's search; fairseq's "
        "with its label_smoothed_cross_entropy, adam and search."
    )
