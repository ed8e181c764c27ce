"""Every mixer in every place on a GPU, real or simulated: ``pytest -m gpu``."""

import pytest
import torch

from support import gpu_laws
from support.building import mixer_cases, usual_gate

pytestmark = pytest.mark.gpu

LAWS = [
    gpu_laws.a_training_step_waits_once,
    lambda gpu, case: gpu_laws.a_training_step_waits_once(gpu, case, dropout=0.2),
    lambda gpu, case: gpu_laws.autocast_computes_in_half_precision(gpu, case, torch.bfloat16),
    lambda gpu, case: gpu_laws.autocast_computes_in_half_precision(gpu, case, torch.float16),
    gpu_laws.encoding_waits_once,
    gpu_laws.steps_of_fairseqs_search_find_their_states,
    gpu_laws.a_step_of_the_search_waits_once,
    lambda gpu, case: gpu_laws.a_step_of_the_search_waits_once(gpu, case, torch.bfloat16),
    gpu_laws.stored_energies_are_those_of_a_cpu,
    gpu_laws.what_is_plotted_is_that_of_a_cpu,
]
NAMES = "training dropout bf16 fp16 encoding steps search search_in_bf16 stored plotted".split()


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@pytest.mark.parametrize("case", [case for case in mixer_cases() if case.options or case.gate == usual_gate(case)], ids=str)
def test_law(gpu, law, case):
    law(gpu, case)
