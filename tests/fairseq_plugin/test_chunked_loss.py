"""fairseq's criterions in chunks, against fairseq's own."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import ModuleProxyWrapper
from fairseq.models.fairseq_encoder import FairseqEncoder
from fairseq.models.fairseq_model import FairseqEncoderDecoderModel
from omegaconf import open_dict

from posnet_fairseq.bench.models_speed import fairseq_transformer, random_sample
from posnet_fairseq.fairseq_plugin.training_options import check_training_options
from posnet_fairseq.ops import output_loss
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from support.building import WORDS, build_language_model, build_model

OPTIONS = {
    "label_smoothed_cross_entropy": [
        {"label_smoothing": 0.1, "sentence_avg": False},
        {"label_smoothing": 0.0, "sentence_avg": True, "ignore_prefix_size": 2},
        {"label_smoothing": 0.2, "sentence_avg": False, "report_accuracy": True, "ignore_prefix_size": 1},
    ],
    "cross_entropy": [{"sentence_avg": True}, {"sentence_avg": False}],
}
TASK = synthetic.task(WORDS)


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(output_loss, "MIN_CHUNK", 7)


def sample():
    torch.manual_seed(1)
    made = random_sample(TASK.target_dictionary, sentences=10, length=6)
    made["target"][3:5, -2:] = TASK.target_dictionary.pad()
    return made | {"ntokens": int(made["target"].ne(TASK.target_dictionary.pad()).sum())}


def outcome(name, model, batch, options, reduce=True):
    """Loss, sample size, logging outputs and gradients."""
    criterion = CRITERION_REGISTRY[name](TASK, **options)
    model.zero_grad()
    loss, size, logging = criterion(model, batch, reduce=reduce)
    loss.sum().backward()
    gradients = {each: parameter.grad.clone() for each, parameter in model.named_parameters()}
    return loss.detach(), size, logging, gradients


def built(kind):
    if kind == "fairseq":
        return fairseq_transformer(TASK, "tiny", 10).eval()
    if kind == "language model":
        return build_language_model("rposnet")
    return build_model("rposnet", share_all_embeddings=kind == "one embedding")


@pytest.mark.parametrize(("name", "options"), [(name, each) for name in OPTIONS for each in OPTIONS[name]])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("one embedding", torch.float32),
        ("embeddings apart", torch.float64),
        ("fairseq", torch.float64),
        ("language model", torch.float64),
    ],
)
def test_outcomes_are_fairseqs(monkeypatch, kind, name, options, dtype):
    # fairseq's rounds to float32 whatever it gets.
    monkeypatch.setattr(utils, "log_softmax", lambda x, dim, onnx_trace: torch.log_softmax(x, dim))
    model, batch = built(kind).to(dtype), sample()
    if kind == "language model":
        batch["net_input"] = {"src_tokens": batch["net_input"]["prev_output_tokens"]}
    close = 1e-6 if dtype == torch.float32 else 1e-10
    for reduce in (True, False):
        *found, gradients = outcome(f"chunked_{name}", model, batch, options, reduce)
        *expected, theirs = outcome(name, model, batch, options, reduce)
        torch.testing.assert_close(found, expected, rtol=close, atol=0)
        norm = torch.nn.utils.get_total_norm(theirs.values())  # some gradients are zero but for rounding
        for each, gradient in gradients.items():
            assert (gradient - theirs[each]).norm() <= close * norm, each


def test_a_model_without_such_an_output_layer_is_refused():
    model = FairseqEncoderDecoderModel(FairseqEncoder(None), build_model().decoder)
    model.decoder.output_projection = torch.nn.Linear(4, 4)
    with pytest.raises(UsageError, match="without the prefix"):
        CRITERION_REGISTRY["chunked_cross_entropy"](SimpleNamespace(), sentence_avg=False)(model, {})


class WithoutOption(FairseqEncoderDecoderModel):
    """As fairseq's transformer_align, whose forward lists its arguments."""

    def forward(self, src_tokens, src_lengths, prev_output_tokens):
        return super().forward(src_tokens, src_lengths, prev_output_tokens)


def test_a_model_that_cannot_leave_its_output_layer_out_is_refused():
    """Also when it is wrapped for several GPUs."""
    whole = build_model()
    model = ModuleProxyWrapper(torch.nn.DataParallel(WithoutOption(whole.encoder, whole.decoder), device_ids=[]))
    with pytest.raises(UsageError, match="without the prefix"):
        CRITERION_REGISTRY["chunked_cross_entropy"](TASK, sentence_avg=False)(model, sample())


def options_of_training(words=(), **distributed):
    """The complete options of a training on the CPU with the chunked loss."""
    parser = fairseq_options.get_training_parser()
    words = ["data", "--arch", "rposnet_tiny", "--criterion", "chunked_cross_entropy", "--cpu", *words]
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, words))
    with open_dict(cfg):
        cfg.distributed_training.update({"distributed_world_size": 2, **distributed})
    return cfg


UNUSED = ["--ddp-backend", "pytorch_ddp", "--find-unused-parameters"]


def test_an_output_layer_that_seems_unused_is_refused():
    """torch: "Expected to mark a variable ready only once"."""
    with pytest.raises(UsageError, match="--ddp-backend legacy_ddp, or the criterion without the prefix"):
        check_training_options(options_of_training(UNUSED))


@pytest.mark.parametrize(
    ("words", "distributed"),
    [
        (["--ddp-backend", "legacy_ddp", *UNUSED[2:]], {}),
        ([*UNUSED, "--criterion", "cross_entropy"], {}),
        ([*UNUSED, "--share-decoder-input-output-embed"], {}),
        (UNUSED, {"distributed_world_size": 1}),
    ],
    ids=str,
)
def test_other_output_layers_are_not(words, distributed):
    check_training_options(options_of_training(words, **distributed))
