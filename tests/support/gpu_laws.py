"""What holds on a GPU for every mixer: the results of a CPU, few waits, the data types of autocast.

Each takes the GPU of ``tests/gpu/conftest.py`` and a case, and raises an error if it is broken.
"""

import contextlib
import copy
from unittest import mock

import torch

from posnet_fairseq.inference.inspection import of_texts
from posnet_fairseq.inference.search import beam
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import TextPipeline
from support.building import build_case, build_language_model, pad, sentences
from support.laws import decode
from support.searching import DICTIONARY, assert_same

TOLERANCE = {"rtol": 0, "atol": 1e-4}


# A wait in any layer is one too many already.
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


def moved(module, gpu):
    """A copy of a module on the GPU."""
    return copy.deepcopy(module).to(gpu.device)


def assert_equal(on_gpu, expected):
    torch.testing.assert_close(on_gpu.cpu(), expected, **TOLERANCE)


def batches():
    """Sources and targets with padding, on different sides, and without."""
    yield pad(sentences(5, 8, 3), left=True), pad(sentences(6, 9, 2))
    yield pad(sentences(7, 7)), pad(sentences(6, 6))


def a_training_step_waits_once(gpu, case, dropout=0.0):
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), dropout)
    model = build_case(case, **rates, **ONE_LAYER).train()
    on_gpu = moved(model, gpu)
    for source, target in batches():
        results = []
        for one, *tokens in ((model, source, target), (on_gpu, source.to(gpu.device), target.to(gpu.device))):
            one.zero_grad()
            torch.manual_seed(5)
            # The model on the CPU draws the numbers of dropout as GPUs do, by torch's operation.
            by_16_bits = "posnet_fairseq.ops.dropout.is_by_16_bits", "posnet_fairseq.mixers.attention.is_by_16_bits"
            with mock.patch(by_16_bits[0], return_value=False), mock.patch(by_16_bits[1], return_value=False):
                with gpu.counted_waits() as forward:
                    loss = decode(one, *tokens).logsumexp(-1).mean()
                with gpu.counted_waits() as backward:
                    loss.backward()
            assert len(forward) <= 1, forward
            assert backward == [], backward
            results.append([loss.detach(), *(p.grad for p in one.parameters() if p.grad is not None)])
        if dropout == 0 or gpu.draws_as_a_cpu:
            for result, expected in zip(*reversed(results), strict=True):
                assert_equal(result, expected)


def autocast_computes_in_half_precision(gpu, case, dtype):
    """Products are in half precision, gradients and normalization in float32; buffers stay as they are."""
    model = moved(build_case(case, **ONE_LAYER).train(), gpu)
    dtypes = {name: buffer.dtype for name, buffer in model.named_buffers()}
    source, target = (tokens.to(gpu.device) for tokens in next(batches()))
    with torch.autocast(gpu.device.type, dtype=dtype):
        encoded = model.encoder(source)["posnet"][0]
        scores = decode(model, source, target)
    found = {"states": encoded.states.dtype, "scores": scores.dtype}
    assert found == {"states": torch.float32, "scores": dtype}, found  # states come from a LayerNorm
    scores.float().logsumexp(-1).mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(gradient.dtype == torch.float32 for gradient in gradients)
    assert all(torch.stack([gradient.isfinite().all() for gradient in gradients]).tolist())
    assert {name: buffer.dtype for name, buffer in model.named_buffers()} == dtypes


def encoding_waits_once(gpu, case, dtype=torch.float32):
    model = build_case(case, **ONE_LAYER).to(dtype)
    on_gpu = moved(model, gpu)
    for source, _ in batches():
        with torch.inference_mode():
            there = source.to(gpu.device)
            with gpu.counted_waits() as waits:
                encoded = on_gpu.encoder(there)["posnet"][0]
            assert len(waits) <= 1, waits
            assert encoded.states.dtype == dtype
            if dtype == torch.float32:
                assert_equal(encoded.states, model.encoder(source)["posnet"][0].states)


def steps_of_fairseqs_search_find_their_states(gpu, case):
    """Hypotheses change places, are taken twice, and become fewer."""
    model = build_case(case, **ONE_LAYER)
    on_gpu, source = moved(model, gpu), pad(sentences(6, 4), left=True)
    orders = [[0, 0, 0, 1, 1, 1], [2, 0, 1, 3, 3, 5], [0, 1, 2, 5, 4, 3], [3, 5, 4], [0, 1, 1]]
    found = []
    for one, device in ((model, torch.device("cpu")), (on_gpu, gpu.device)):
        with torch.no_grad():
            encoded, state = one.encoder(source.to(device)), {}
            prefix = torch.full((2, 1), 2, device=device)
            scores = []
            for numbers in orders:
                scores.append(one.decoder(prefix, encoder_out=encoded, incremental_state=state)[0])
                order = torch.tensor(numbers, device=device)
                one.decoder.reorder_incremental_state_scripting(state, order)
                encoded = one.encoder.reorder_encoder_out(encoded, order)
                prefix = torch.cat([prefix[order], 5 + order[:, None]], dim=1)
            found.append(scores)
    for result, expected in zip(*reversed(found), strict=True):
        assert_equal(result, expected)


def a_step_of_the_search_waits_once(gpu, case, dtype=torch.float32):
    """Also a step in which sentences leave the batch. A search waits for its sources and results besides."""
    model = build_case(case, **ONE_LAYER).to(dtype)
    return assert_search(gpu, model, compared=dtype == torch.float32)


def stored_energies_are_those_of_a_cpu(gpu, case):
    model = build_case(case, **ONE_LAYER)
    on_gpu = moved(model, gpu)
    precompute(model)
    precompute(on_gpu)
    for result, expected in zip(on_gpu.parameters(), model.parameters(), strict=True):
        assert result.device == gpu.device
        assert_equal(result, expected)
    for source, target in batches():
        there = source.to(gpu.device), target.to(gpu.device)
        with torch.no_grad(), gpu.counted_waits() as waits:
            scores = decode(on_gpu, *there)
        assert len(waits) <= 1, waits
        assert_equal(scores, decode(model, source, target))
    assert_search(gpu, model)


def a_language_model_waits_only_in_steps(gpu, mixer):
    model = build_language_model(mixer)
    on_gpu = moved(model, gpu)
    for tokens, _ in batches():
        results = []
        for one, device in ((model, torch.device("cpu")), (on_gpu, gpu.device)):
            there = tokens.to(device)
            with gpu.counted_waits() as waits:
                loss = one(there)[0].logsumexp(-1).mean()
                loss.backward()
            assert waits == [], waits
            results.append([loss.detach(), *(parameter.grad for parameter in one.parameters())])
        for result, expected in zip(*reversed(results), strict=True):
            assert_equal(result, expected)
    assert_search(gpu, model.decoder)


def what_is_plotted_is_that_of_a_cpu(gpu, case):
    model = build_case(case, **ONE_LAYER)
    texts = Vocabulary("", "", DICTIONARY, DICTIONARY), TextPipeline(), "w1 w2 w3 w4 w5 w6 w7", "w8 w3 w4 w5 w6"
    observed, _ = of_texts(moved(model, gpu), *texts, SearchSettings())
    for found, expected in zip(observed, of_texts(model, *texts, SearchSettings())[0], strict=True):
        for name in ("weights", "hidden", "energies", "added", "at", "query_gates", "token_gates"):
            result, wanted = getattr(found, name), getattr(expected, name)
            assert (result is None) == (wanted is None)
            if wanted is not None:
                assert result.device.type == "cpu"
                torch.testing.assert_close(result, wanted, equal_nan=True, **TOLERANCE)


def assert_search(gpu, model, compared=True):
    """The search finds what it finds on a CPU, and waits once a step. Returns the hypotheses of each step."""
    sources, on_gpu = sentences(6, 3, 9, 5, 4), moved(model, gpu)
    if not hasattr(model, "encoder"):
        sources = [source[:2] for source in sources]
    settings = SearchSettings(beam=4, max_len_b=12, no_repeat_ngram_size=1, temperature=10.0)

    def search(one):
        return BeamSearch([one], DICTIONARY, settings, settings.beam, shortlist=FewWords())(sources)

    with counted_steps() as steps, gpu.counted_waits() as waits:
        found = search(on_gpu)
    assert len(waits) <= len(steps) + FOR_SOURCES + FOR_RESULTS, waits
    if compared:
        assert_same(found, search(model))
    return steps


class FewWords:
    """A shortlist: of few words one is the end symbol soon."""

    def of(self, sources, prefixes):
        return torch.cat([torch.arange(10), *prefixes]).unique()


# Copies of shortlist, sources and prefixes, and whether the sources have padding.
FOR_SOURCES = 4
# Copies of tokens, parents, numbers of hypotheses, nodes and scores.
FOR_RESULTS = 5


@contextlib.contextmanager
def counted_steps():
    """A list with an entry for each step of a search."""
    steps, step = [], beam.Ensemble.step

    def counted(self, tokens, rows):
        steps.append(len(tokens))
        return step(self, tokens, rows)

    beam.Ensemble.step = counted
    try:
        yield steps
    finally:
        beam.Ensemble.step = step
