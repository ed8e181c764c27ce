"""Beam search of whole models in several engines, on the same sentences."""

import copy
import importlib.util
import math
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from posnet_fairseq.bench.models_speed import BASELINE, beam_search, build_models, mixer_transformer, random_sample
from posnet_fairseq.bench.printed_tables import MIB, Measurements
from posnet_fairseq.bench.timing import default_device, device_clock, interleaved, median_ratio, peak_resident
from posnet_fairseq.inference import ctranslate2_export
from posnet_fairseq.inference.checkpoints import model_options, refuse_other_kind
from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.inference.model_loading import build_model
from posnet_fairseq.inference.precision import prepare_for_inference
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.shared.errors import UsageError, about, counted
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.schema import check_range
from posnet_fairseq.text import synthetic
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.transformer.sizes import SIZES

PRECISIONS = ("float32", "int8")


def has_ctranslate2() -> bool:
    """Return whether CTranslate2, the extra `bench`, is installed, and computes on the device that is measured."""
    if importlib.util.find_spec("ctranslate2") is None:
        return False
    import ctranslate2

    return default_device().type == "cpu" or ctranslate2.get_cuda_device_count() > 0


def build(
    mixers: Sequence[str], checkpoints: Sequence[str], size: str, words: int, longest: int
) -> tuple[dict[str, nn.Module], SimpleNamespace, list[str]]:
    """Return models in evaluation mode and with stored energies, their task, and the checkpoints of another size.

    fairseq's own Transformer is the first model. The size of the dictionary of trained models overrides `words`.
    """
    check_range("--words", words, 10, 10**7)
    trained, others = {}, []
    shape = SIZES[size].of_side("encoder") | SIZES[size].of_side("decoder")
    for path in checkpoints:
        state = read_model(path)
        with about(path):
            refuse_other_kind(state)
            trained[path] = build_model(state)
        if not shape.items() <= vars(model_options(state)).items():
            others.append(path)
    for path, model in trained.items():
        limit = min(model.encoder.max_positions(), model.decoder.max_positions())
        if longest > limit:
            raise UsageError(f"--lengths {longest}: {path} takes {limit} tokens. Give at most that.")
    sizes = {side.embed_tokens.num_embeddings for model in trained.values() for side in (model.encoder, model.decoder)}
    if len(sizes) > 1:
        raise UsageError("--checkpoints: they have dictionaries of different sizes. Measure those of one task.")
    words = sizes.pop() if sizes else words
    task = synthetic.task(words)
    models = build_models(task, mixers, size, longest + 2)
    for name, model in (models | trained).items():
        models[name] = model.eval()
        if name != BASELINE:
            precompute(model)
    return models, task, others


def measure_decoding(
    models: Mapping[str, nn.Module],
    task: SimpleNamespace,
    size: str,
    beam: int,
    length: int,
    sentences: int,
    rounds: int,
) -> dict[str, dict[str, float]]:
    """Time the translation of random sentences to a given length, end symbols counted, by every engine in turn.

    Returns:
        dict from engine to a dict with ``sentences`` (per second), ``ratio`` (median of the ratios to fairseq's
        Transformer), ``peer`` (to CTranslate2 in the same precision, NaN without it) and ``peak`` (bytes held at once).
    """
    torch.manual_seed(1)
    device = default_device()
    sample = random_sample(task.source_dictionary, sentences, length, device)
    with torch.inference_mode():
        prepared = {BASELINE: models[BASELINE].to(device)}
        for name, model in models.items():
            for precision in PRECISIONS if device.type == "cpu" else PRECISIONS[:1]:
                if name != BASELINE:
                    prepared[f"{name}, {precision}"] = prepare_for_inference(copy.deepcopy(model), device, precision)
        engines: dict[str, Callable[[], Any]] = {
            name: beam_search(model, task, sample, beam, length - 1) for name, model in prepared.items()
        }
        if has_ctranslate2():
            for precision in PRECISIONS:
                engines[f"CTranslate2, {precision}"] = converted(task, sample, beam, length, size, precision)
        # CTranslate2's threads on a CPU are not those of this process.
        clock = device_clock if torch.get_num_threads() == 1 else time.perf_counter
        peaks = {name: peak_resident(engine) for name, engine in engines.items()}
        seconds = interleaved(engines, rounds, warm_up=0, clock=clock)
    found = {}
    for name, own in seconds.items():
        peer = seconds.get(f"CTranslate2, {name.rpartition(', ')[2]}")
        found[name] = {
            "sentences": sentences / statistics.median(own),
            "ratio": median_ratio(seconds[BASELINE], own),
            "peer": median_ratio(peer, own) if peer else math.nan,
            "peak": peaks[name],
        }
    return found


def converted(
    task: SimpleNamespace, sample: dict[str, Any], beam: int, length: int, size: str, precision: str
) -> Callable[[], list[Any]]:
    """Return a function that translates a batch by CTranslate2, by a model of the size with attention."""
    import ctranslate2

    entries, model = task.source_dictionary, mixer_transformer(task, "attention", size, length + 2).eval()
    cfg = SimpleNamespace(encoder_attention_heads=SIZES[size].attention_heads, activation_fn="relu")
    with tempfile.TemporaryDirectory() as folder:
        ctranslate2_export.write(model, cfg, Vocabulary("", "", entries, entries), Path(folder))
        translator = ctranslate2.Translator(
            folder,
            device=default_device().type,
            compute_type=precision,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    special = (entries.pad(), entries.eos())
    rows = sample["net_input"]["src_tokens"].tolist()
    sources = [[entries[token] for token in row if token not in special] for row in rows]
    return lambda: translator.translate_batch(
        sources, beam_size=beam, min_decoding_length=length - 1, max_decoding_length=max(1, length - 1)
    )


def tables(options: Namespace) -> Iterator[Measurements | str]:
    """Yield what ``posnet-bench decode`` prints."""
    models, task, others = build(options.mixers, options.checkpoints, options.size, options.words, max(options.lengths))
    check_range("--beams", max(options.beams), 1, len(task.source_dictionary) - 1)
    for beam in options.beams:
        for length in options.lengths:
            results = measure_decoding(models, task, options.size, beam, length, options.sentences, options.rounds)
            texts = f"{counted(options.sentences, 'sentence')} of {counted(length, 'token')}"
            title = f"{texts}, beam {beam}, size {options.size}"
            columns = {
                "sent.\n/s": ".2f",
                "tokens\n/s": ",.0f",
                "×\nfairseq": ".2f",
                "×\nCT2": ".2f",
                "memory\nMiB": ",.1f",
            }
            shown = Measurements(title, columns)
            for name, figures in results.items():
                speed, peer = figures["sentences"], "" if math.isnan(figures["peer"]) else figures["peer"]
                shown.add(name, speed, speed * length, figures["ratio"], peer, figures["peak"] / MIB)
            yield shown
    yield (
        f"{len(task.source_dictionary):,} words, random sentences. × CT2: CTranslate2 in the same precision. Memory: "
        "the most that a batch takes at once."
    )
    if others:
        yield (
            f"Not of size {options.size}, with which both ratios compare: {', '.join(others)}. --size chooses another."
        )
    if not has_ctranslate2():
        yield f"CTranslate2 is not installed, or does not find the GPU. {how_to_install('bench')}"
