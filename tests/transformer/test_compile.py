"""--compile: the same weights and translations. A backend that runs graphs as they are takes the place of torch's."""

import functools

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from posnet_fairseq import api
from posnet_fairseq.cli import doctor, translate
from posnet_fairseq.fairseq_plugin.training_options import check_training_options
from posnet_fairseq.inference.precision import prepare_for_inference
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer import compiling
from posnet_fairseq.transformer.compiling import check_compiler
from support.building import MAX_POSITIONS, WORDS, build_model
from support.checkpoints import checkpoint

LINES = ["w1 w2 w3 w10", "w1", "w5 w4 w3 w2 w1 w6 w7", "w11 w12"]


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
@pytest.mark.thorough  # 20 s; quick: test_the_command_compiles
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


@pytest.fixture
def path(tmp_path):
    return checkpoint(tmp_path / "data" / "averaged.pt", "rposnet")


@pytest.mark.thorough  # 15 s
def test_steps_have_graphs_for_all_positions(graphs, path):
    model = api.load(path, pretokenized=True, compile=True)
    steps = 20
    for line in ("w1 w2 w3", "w4 w5 w6 w7 w8", "w9 w10"):
        before = len(graphs)
        model.translate(line, beam=2, min_len=steps, max_len_b=steps)
    assert len(graphs) == before < steps / 2


@pytest.mark.thorough  # 8 s
def test_the_command_compiles(graphs, path, tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{line}\n" for line in LINES))
    words = [str(path), "--input", str(source), "--output", str(output), "--pretokenized", "--cpu", "--beam", "2"]
    written = []
    for more in ([], ["--compile"]):
        translate.main([*words, *more])
        written.append(output.read_text())
    assert written[0] == written[1]
    assert graphs


def test_what_cannot_be_compiled_is_refused(graphs, path):
    for dtype in ("int8", "bf16"):
        with pytest.raises(UsageError, match=f"^compile with dtype {dtype}: on CPUs their weights are packed"):
            api.load(path, dtype=dtype, compile=True)
    with pytest.raises(UsageError, match="--compile: torch compiles translution in training only"):
        prepare_for_inference(build_model("translution"), torch.device("cpu"), compile=True)


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
