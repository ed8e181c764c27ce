"""The loss of the output layer in chunks, against the whole scores at once."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch.nn.functional import linear

from posnet_fairseq.bench.timing import peak_bytes
from posnet_fairseq.ops import output_loss as module
from posnet_fairseq.ops.output_loss import output_loss
from posnet_fairseq.shared.errors import UsageError

PADDING = 1


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Chunks of 8 tokens, in blocks of 3 with 11 words; the last ones have fewer."""
    monkeypatch.setattr(module, "MIN_CHUNK", 8)
    monkeypatch.setattr(module, "IN_CACHE", 3 * 11)
    monkeypatch.setattr(module, "MAX_CHUNKS", 100)


def tensors(dtype=torch.float64, tokens=21, words=11, width=6):
    torch.manual_seed(1)
    features = torch.randn(tokens, width, dtype=dtype).requires_grad_()
    weight = torch.randn(words, width, dtype=dtype).requires_grad_()
    targets = torch.randint(4, words, (tokens,))
    targets[[0, 5, 20]] = PADDING
    return features, weight, targets


def at_once(features, weight, targets, smoothing):
    log_probs = torch.log_softmax(linear(features, weight), dim=-1)
    return label_smoothed_nll_loss(log_probs, targets, smoothing, ignore_index=PADDING)


def with_padding(*arguments):
    """As on GPUs, where padding is not left out."""
    return module.OutputLoss(*module._OutputLoss.apply(*arguments, False, True))


@pytest.mark.parametrize("library", ["oneDNN", "MKL"])
@pytest.mark.parametrize("of_chunks", [output_loss, with_padding])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_and_gradients_are_those_of_all_scores_at_once(monkeypatch, smoothing, of_chunks, library):
    monkeypatch.setattr(module, "onednn_is_faster", lambda: library == "oneDNN")
    features, weight, targets = tensors()
    found = of_chunks(features, weight, targets, smoothing, PADDING)
    expected = at_once(features, weight, targets, smoothing)
    torch.testing.assert_close(found[:2], expected, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(3 * loss, (features, weight)) for loss in (found.loss, expected[0])]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)
    assert not found.nll_loss.requires_grad


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_needs_no_gradient_gets_none(frozen):
    arguments = tensors()
    arguments[frozen].requires_grad_(False)
    output_loss(*arguments, 0.1, PADDING).loss.backward()
    assert (arguments[0].grad is None, arguments[1].grad is None) == (frozen == 0, frozen == 1)
    with torch.no_grad():
        assert not output_loss(*arguments, 0.1, PADDING).loss.requires_grad


def test_a_second_backward_pass_is_refused():
    features, weight, targets = tensors()
    loss = output_loss(features, weight, targets, 0.1, PADDING).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Compute the loss again"):
        loss.backward()
    loss = output_loss(features, weight, targets, 0.1, PADDING).loss
    with pytest.raises(UsageError, match="create_graph=True"):
        torch.autograd.grad(loss, features, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_loses_no_more_than_the_scores_do(dtype, autocast):
    features, weight, targets = tensors(torch.float32, tokens=40, words=300, width=32)
    expected = torch.autograd.grad(at_once(features, weight, targets, 0.1)[0], (features, weight))
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        arguments = (features, weight) if autocast else (features.to(dtype), weight.to(dtype))
        found = output_loss(*arguments, targets, 0.1, PADDING)
    assert found.loss.dtype == torch.float32
    torch.testing.assert_close(found.loss, at_once(features, weight, targets, 0.1)[0], rtol=1e-2, atol=0)
    for one, other in zip(torch.autograd.grad(found.loss, (features, weight)), expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()


def test_float16_keeps_the_gradients_of_words_that_never_occur():
    """Each of 40,000 words is expected with a probability of 2.5e-6, where numbers of float16 are 2% apart."""
    features, weight, targets = tensors(torch.float32, words=40_000, width=4)
    targets.clamp_(max=20)
    features.data[:, 0], weight.data[30_000:, 0] = 1, -100  # these words have probability 0
    half = [tensor.detach().half().requires_grad_() for tensor in (features, weight)]
    (128 * output_loss(*half, targets, 0.1, PADDING).loss).backward()  # by which fairseq multiplies the loss at first
    (128 * at_once(features, weight, targets, 0.1)[0]).backward()
    torch.testing.assert_close(half[1].grad[30_000:, 0].float(), weight.grad[30_000:, 0], rtol=5e-3, atol=0)


@pytest.mark.parametrize("width", [4, 300])
def test_float16_has_a_finite_gradient_of_a_frequent_word(monkeypatch, width):
    """In multiples of 16 it would be 90,000 or more, and numbers of float16 end at 65,504."""
    monkeypatch.setattr(module, "MIN_CHUNK", 256)
    features = torch.full((256, width), 30.0, dtype=torch.float16)
    weight = torch.zeros(20, width, dtype=torch.float16, requires_grad=True)
    (gradient,) = torch.autograd.grad(output_loss(features, weight, torch.full((256,), 7), 0.0, PADDING).loss, weight)
    expected = torch.full((20, width), 256 * 30 / 20)
    expected[7] -= 256 * 30
    torch.testing.assert_close(gradient.float(), expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize("library", ["oneDNN", "MKL"])
@pytest.mark.parametrize(("tokens", "words", "width"), [(1200, 3000, 192), (3400, 8000, 64)])
def test_a_quarter_of_the_memory(monkeypatch, tokens, words, width, library):
    monkeypatch.undo()
    monkeypatch.setattr(module, "onednn_is_faster", lambda: library == "oneDNN")
    features, weight, targets = tensors(torch.float32, tokens, words, width)

    def peak(loss):
        features.grad = weight.grad = None
        return peak_bytes(lambda: loss(features, weight, targets, 0.1)[0].backward())

    assert peak(lambda *arguments: output_loss(*arguments, PADDING)) <= peak(at_once) / 4
