"""--compile: the same gradients and validation. A backend that runs graphs as they are takes the place of torch's."""

import functools

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from posnet_fairseq.cli import doctor
from posnet_fairseq.fairseq_plugin.training_options import check_training_options
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer import compiling
from posnet_fairseq.transformer.compiling import check_compiler
from support.building import MAX_POSITIONS, WORDS, build_model


@pytest.fixture
def graphs(monkeypatch):
    """The operations of each graph that is compiled, after the trial's."""
    found = []

    def backend(graph, inputs):
        if len(graph.graph.nodes) > 5:
            found.append(len(graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    yield found
    torch._dynamo.reset()


def gradients(model, tokens):
    model.zero_grad()
    encoded = model.encoder(tokens)
    model.decoder(tokens.roll(1, dims=1), encoded)[0].square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("mixer", ["rposnet", "attention"])
@pytest.mark.thorough  # 20 s; quick: one mixer compiled by itself, in test_banded
def test_training_has_equal_gradients_and_validation_is_not_compiled(graphs, mixer):
    torch.manual_seed(1)
    plain, compiled = (build_model(mixer, compile=compile).double() for compile in (False, True))
    compiled.load_state_dict(plain.state_dict())
    assert list(compiled.state_dict()) == list(plain.state_dict())
    batches = [torch.randint(4, WORDS, (3, length)) for length in (7, 9, MAX_POSITIONS)]
    batches[1][0, :3] = 1  # padding
    for mode, more in ((False, 0), (True, 2), (False, 0), (True, 0)):
        before = len(graphs)
        for model in (plain, compiled):
            model.train(mode)
        for tokens in batches:
            torch.testing.assert_close(gradients(compiled, tokens), gradients(plain, tokens), rtol=1e-6, atol=1e-8)
        # Encoder and decoder layers, of which there are two each, have one graph, or one with and one without padding.
        assert 1 * more <= len(graphs) - before <= 2 * more


def test_a_machine_without_compiler(monkeypatch):
    def backend(graph, inputs):
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found")

    torch._dynamo.reset()
    monkeypatch.setattr(compiling, "path_with_space", lambda: None)  # as where torch is may have one
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    with pytest.raises(UsageError, match=r"--compile: torch could not compile .* takes a C\+\+ compiler"):
        check_compiler("cpu")


@pytest.mark.thorough  # 10 s
@pytest.mark.parametrize("of_torch", [False, True])
def test_a_path_with_a_space(of_torch, monkeypatch, tmp_path):
    """Torch itself, of a folder that it can write to, fails as well."""
    place = tmp_path / "with a space"
    if of_torch:
        monkeypatch.setattr(torch, "__file__", str(place / "torch/__init__.py"))
    else:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place))
    (finding,) = [each for each in doctor.examine() if each.what == "compiling"]
    assert (finding.works, finding.needed) == (False, False)
    assert finding.says.startswith(f"torch.compile fails on CPUs: there is a space in {place}")
    assert finding.fix.endswith("a folder without a space")
    if not of_torch:
        torch._dynamo.reset()
        sentence = r"^--compile: torch\.compile fails on CPUs: there is a space in .*\. To fix it, set TORCHINDUCTOR"
        with pytest.raises(UsageError, match=sentence):
            check_compiler("cpu")


def test_layers_that_are_computed_again_are_refused():
    words = ["data", "--arch", "rposnet_tiny", "--cpu", "--compile", "--checkpoint-activations"]
    cfg = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), words)
    with pytest.raises(UsageError, match="--compile with --checkpoint-activations: torch compiles no such layers"):
        check_training_options(convert_namespace_to_omegaconf(cfg))
