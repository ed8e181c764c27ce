"""Every mixer in every place on a GPU, real or simulated: ``pytest -m gpu``."""

import functools

import pytest
import torch

from posnet_fairseq.registry import get_mixer, mixer_names
from support import gpu_laws
from support.building import USUAL, Case, mixer_cases

pytestmark = pytest.mark.gpu

OPTIONS = [case for case in mixer_cases() if case.options]
TRAINING = gpu_laws.a_training_step_waits_once
STORING = gpu_laws.stored_energies_are_those_of_a_cpu
LAWS = {
    "training": TRAINING,
    "dropout": functools.partial(TRAINING, dropout=0.2),
    "bf16": functools.partial(gpu_laws.autocast_computes_in_half_precision, dtype=torch.bfloat16),
    "fp16": functools.partial(gpu_laws.autocast_computes_in_half_precision, dtype=torch.float16),
    "plotting": gpu_laws.what_is_plotted_is_that_of_a_cpu,
}
# Elsewhere than in their places, models have attention.
IN_ENCODERS = {
    "encoding": gpu_laws.encoding_waits_once,
    "encoding_in_bf16": functools.partial(gpu_laws.encoding_waits_once, dtype=torch.bfloat16),
}
IN_DECODERS = {
    "steps": gpu_laws.steps_of_fairseqs_search_find_their_states,
    "search": gpu_laws.a_step_of_the_search_waits_once,
    "search_in_bf16": functools.partial(gpu_laws.a_step_of_the_search_waits_once, dtype=torch.bfloat16),
}


def laws_of_cases():
    """Every mixer with its usual gate, and every law of its place."""
    for case in USUAL:
        for name, law in (LAWS | (IN_ENCODERS if case.place == "encoder" else IN_DECODERS)).items():
            yield pytest.param(law, case, id=f"{name}-{case}")


@pytest.mark.parametrize(("law", "case"), laws_of_cases())
def test_law(gpu, law, case):
    law(gpu, case)


def test_sentences_leave_a_search_one_by_one(gpu):
    steps = gpu_laws.a_step_of_the_search_waits_once(gpu, Case("rposnet", "encoder", "gelu"))
    assert len(set(steps)) > 2, steps


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_options(gpu, case):
    TRAINING(gpu, case)


@pytest.mark.parametrize("case", [case for case in USUAL if get_mixer(case.mixer).static], ids=str)
def test_storing(gpu, case):
    STORING(gpu, case)


@pytest.mark.parametrize("mixer", [name for name in mixer_names() if "decoder" in get_mixer(name).places])
def test_language_model(gpu, mixer):
    gpu_laws.a_language_model_waits_only_in_steps(gpu, mixer)
