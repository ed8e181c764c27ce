"""Whole models against fairseq's own Transformer of the same size: a training step, and decoding."""

import statistics
from argparse import Namespace

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.sequence_generator import SequenceGenerator

from posnet_fairseq.bench.timing import interleaved, median_ratio
from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.transformer.architectures import apply_arch
from posnet_fairseq.transformer.sizes import SIZES

BASELINE = "fairseq transformer"


def fairseq_transformer(task, size, positions):
    """fairseq's own model of a size, pre-norm, with shared embeddings."""
    shape = SIZES[size]
    options = {
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "dropout": shape.dropout,
        "share_all_embeddings": True,
        "max_source_positions": positions,
        "max_target_positions": positions,
    }
    for side in ("encoder", "decoder"):
        options |= shape.of_side(side)
    arguments = Namespace(**options)
    base_architecture(arguments)
    return TransformerModel.build_model(arguments, task)


def mixer_transformer(task, mixer, size, positions):
    """A model of ours, the same otherwise."""
    options = Namespace(
        share_all_embeddings=True,
        max_source_positions=positions,
        max_target_positions=positions,
        # fairseq's Transformer has no dropout on attention weights by default.
        attention_dropout=0.0,
    )
    apply_arch(options, mixer, size)
    return MixerTransformer.build_model(options, task)


def random_sample(dictionary, sentences, length):
    """Sources padded on the left, as fairseq does; a tenth of the sentences a token shorter than the others."""
    tokens = torch.randint(dictionary.nspecial, len(dictionary), (sentences, length))
    tokens[:, -1] = dictionary.eos()
    source, target = tokens.clone(), tokens.flip(0)
    source[: sentences // 10, 0] = dictionary.pad()
    lengths = torch.full((sentences,), length)
    lengths[: sentences // 10] -= 1
    inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target.roll(1, dims=1)}
    return {"net_input": inputs, "target": target, "ntokens": target.numel()}


def _training_step(model, task, sample):
    model.train()
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step():
        loss, size, _ = criterion(model, sample)
        optimizer.zero_grad()
        (loss / size).backward()
        optimizer.step()

    return step


def beam_search(model, task, sample, beam, length):
    """A function that translates a sample, as fairseq-generate does, to sentences of the given length."""
    model.eval()
    # Weights are random: every sentence is made as long as it may be.
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_b=length, min_len=length)
    inputs = {"net_input": {name: sample["net_input"][name] for name in ("src_tokens", "src_lengths")}}
    return lambda: generator.generate([model], inputs)


def run(mixers, size="tiny", words=3136, sentences=100, length=12, beam=5, rounds=7):
    """Time models of one size in turn.

    Args:
        mixers: names of mixers, each for encoder and decoder self-attention.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
        words: entries of the dictionary.
        sentences: in the batch.
        length: tokens of every sentence, source, target and translation.
        beam: of decoding.
        rounds: how often everything is timed.

    Returns:
        dict from model to a dict with ``training`` (target tokens per CPU second), ``decoding`` (sentences per CPU
        second), and their median ratios to fairseq's Transformer, ``training_ratio`` and ``decoding_ratio``.
    """
    torch.manual_seed(1)
    task = synthetic.task(words)
    positions = length + 2
    models = {BASELINE: fairseq_transformer(task, size, positions)}
    models |= {f"{get_mixer(mixer).arch}_{size}": mixer_transformer(task, mixer, size, positions) for mixer in mixers}
    sample = random_sample(task.source_dictionary, sentences, length)
    training = interleaved({name: _training_step(model, task, sample) for name, model in models.items()}, rounds)
    with torch.inference_mode():
        decoders = {name: beam_search(model, task, sample, beam, length) for name, model in models.items()}
        decoding = interleaved(decoders, rounds)
    return {
        name: {
            "training": sample["ntokens"] / statistics.median(training[name]),
            "decoding": sentences / statistics.median(decoding[name]),
            "training_ratio": median_ratio(training[BASELINE], training[name]),
            "decoding_ratio": median_ratio(decoding[BASELINE], decoding[name]),
        }
        for name in models
    }
