"""Checkpoints of earlier releases load as they are, as docs/architecture.md says."""

import hashlib
import json

import pytest

from support.building import build_language_model, build_model

# The first digits of a digest of the names and shapes of all weights, in release 0.3.0: of a translation model and of a
# language model of `support.building`.
RELEASED = {
    "alpha_translution": ("337397bd", "8382deeb"),
    "aposnet": ("3726efe3", "efac8d04"),
    "arposnet": ("9d03793c", "1df7970c"),
    "attention": ("8ac06700", "94481527"),
    "fouriernet": ("49d01ab3", None),
    "gaussiannet": ("be247e5f", "48699f2e"),
    "glinearnet": ("91ca2943", "c4100459"),
    "gpsa": ("52997174", "8b95a09a"),
    "huang": ("b9c9a54f", "3c991abd"),
    "irpe": ("4dd96b59", "855f3fa6"),
    "lightconv": ("f66282e9", "45bb6ff3"),
    "linearnet": ("9492d049", "b453a83a"),
    "relative": ("cbeece2c", "8889a973"),
    "rope": ("282c71af", "ff39a63c"),
    "rposnet": ("7fc14333", "4ef6385e"),
    "scalar_bias": ("06067333", "56cb01ef"),
    "shaw": ("e7e002a4", "bcf1b002"),
    "transformer_xl": ("3f1949a4", "c05d29e9"),
    "translution": ("673b7f26", "22e4cdb6"),
}


def digest(model):
    names = sorted((name, list(tensor.shape)) for name, tensor in model.state_dict().items())
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]


@pytest.mark.parametrize("mixer", RELEASED)
def test_weights_have_the_names_and_shapes_of_the_release(mixer):
    translation, language = RELEASED[mixer]
    assert digest(build_model(mixer)) == translation
    assert language is None or digest(build_language_model(mixer)) == language
