"""Checkpoints of small models."""

from argparse import Namespace

import torch

from posnet_fairseq.cli import precompute
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.text import synthetic
from support.building import WORDS, build_language_model, language_model_options, model_options


def saved(path, cfg, arch, task, model, updates=1, loss=1.0):
    """A file with what fairseq writes into checkpoints."""
    state = {
        "args": None,
        "cfg": {"model": vars(cfg) | {"_name": arch}, "task": task},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": updates, "best_loss": None}],
        "extra_state": {"val_loss": loss},
        "last_optimizer_state": {"large": torch.zeros(3)},
    }
    torch.save(state, path)
    return path


def checkpoint(path, mixer="attention", updates=1, loss=1.0, words=40, **options):
    """A checkpoint as fairseq writes it, with a dictionary beside it."""
    cfg = model_options(mixer, **options)
    entries = synthetic.task(words)
    path.parent.mkdir(exist_ok=True)
    for language in ("xx", "yy"):
        entries.source_dictionary.save(str(path.parent / f"dict.{language}.txt"))
    data = {"_name": "translation", "data": str(path.parent), "source_lang": "xx", "target_lang": "yy"}
    arch = f"{'transformer_pos' if mixer == 'attention' else mixer}_tiny"
    return saved(path, cfg, arch, data, MixerTransformer.build_model(cfg, entries), updates, loss)


def fairseqs_model(state):
    """The model of a checkpoint's content as fairseq builds and loads it, in evaluation mode."""
    entries = synthetic.task(len(state["model"]["encoder.embed_tokens.weight"]))
    model = MixerTransformer.build_model(Namespace(**state["cfg"]["model"]), entries)
    model.load_state_dict(state["model"])
    return model.eval()


def language_model_checkpoint(path, mixer, model=None, **options):
    """A checkpoint of a language model of `support.building`, by default a new one, with its dictionary beside it."""
    path.parent.mkdir(exist_ok=True)
    model = build_language_model(mixer, **options) if model is None else model
    synthetic.dictionary(WORDS).save(str(path.parent / "dict.txt"))
    task = {"_name": "language_modeling", "data": str(path.parent)}
    return saved(path, language_model_options(mixer, **options), f"gpt_a_{mixer}", task, model)


def precomputed(path, *arguments):
    out = path.parent / "fast.pt"
    precompute.main([str(path), "--out", str(out), *map(str, arguments)])
    return out


def weights(path):
    return torch.load(path, weights_only=True)["model"]


def assert_same_weights(path, other, **tolerance):
    torch.testing.assert_close(weights(path), weights(other), **tolerance)
