"""posnet-mixers, and the counts it shows."""

import json

import pytest
from rich.cells import cell_len

from posnet_fairseq.cli import mixers
from posnet_fairseq.costs import counting, mixer_tables
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.mixers.bases.recurrent import RecurrentMixer
from posnet_fairseq.registry import get_mixer, mixer_names, option_fields
from support.commands import modules_of, refused

every_mixer = pytest.mark.parametrize("name", mixer_names())

# PosNet (Schmidt and Di Gangi, WMT 2023) Table 7, as it stands: training, search.
TABLE_7 = {
    "attention": ("2N²D + 4ND²", "2N²D + 4ND²"),
    "shaw": ("K̂ND + 2N²D + 4ND²", "K̂ND + 2N²D + 4ND²"),
    "linearnet": ("N²D + 2ND²", "N²D + 2ND²"),
    "glinearnet": ("N²D + 3ND²", "N²D + 3ND²"),
    "aposnet": ("2N²D + 5ND²", "N²D + 3ND²"),
    "rposnet": ("K̂ND + N²D + 4ND²", "N²D + 3ND²"),
}


@pytest.mark.parametrize("name", TABLE_7)
def test_operations_are_those_of_the_paper(name):
    assert tuple(cost.formula for cost in counting.costs(name, "tiny", 100, 20)) == TABLE_7[name]


@pytest.mark.parametrize(("name", "size"), [*((name, "tiny") for name in mixer_names()), ("rposnet", "base")])
def test_costs_are_those_of_the_whole_model(name, size):
    """Of which only the layers that differ are built."""
    model = counting.build(name, size, words=100)
    trained, stored = counting.costs(name, size, 100, 20)
    assert trained.parameters == counting.parameter_count(model)
    precompute(model)
    assert stored.parameters == counting.parameter_count(model)


def test_counting_does_not_import_the_compiler():
    """Nor sympy: importing them takes longer than counting."""
    imported = modules_of("from posnet_fairseq.costs import counting; counting.costs('rposnet', 'tiny', 100, 25)")
    assert "torch.utils.flop_counter" in imported
    assert not {"sympy", "torch._dynamo"} & imported


@pytest.mark.parametrize("arguments", [[], ["rposnet"], ["rposnet", "--options"]])
def test_tables_fit_a_terminal_and_a_pipe(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    mixers.main(["--size", "tiny", "--words", "100", *arguments])
    shown = capsys.readouterr().out
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert arguments or all(f"{name} " in shown for name in mixer_names())


def test_long_names_of_layers_leave_room_for_numbers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["attention,attention,attention,mamba2,mamba2,mamba2", "--crossbars"]
    mixers.main([*arguments, "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    mixers.main(arguments)
    assert f" {round(row['reads']):,}" in capsys.readouterr().out


@pytest.fixture
def few(monkeypatch):
    """A table of a few mixers."""
    names = ["attention", "fouriernet", "rposnet"]
    monkeypatch.setattr(mixer_tables, "mixer_names", lambda *_, **__: names)
    return names


def test_json(capsys, few):
    mixers.main("--json --size tiny --words 100 --length 20".split())
    rows = {row["mixer"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == few
    trained, stored = counting.costs("rposnet", "tiny", 100, 20)
    assert (rows["rposnet"]["trained"], rows["rposnet"]["stored energies"]) == (trained._asdict(), stored._asdict())
    assert rows["attention"]["arch"] == "transformer_pos_tiny"
    assert rows["fouriernet"]["places"] == ["encoder"]
    mixers.main("rposnet --json --size tiny --words 100 --length 20".split())
    one = json.loads(capsys.readouterr().out)
    assert one["places"] == ["encoder", "decoder", "cross"]
    assert one["stored energies"] == stored._asdict()
    mixers.main(["rposnet", "--options", "--json"])
    (clip,) = [row for row in json.loads(capsys.readouterr().out) if row["option"] == "--clip-distance"]
    assert clip["values"] == "K or K,K,..."


def test_costs_of_different_layers(capsys):
    shape = {"words": 100, "max_positions": 128}
    mixers.main("fouriernet,rposnet,transformer_pos --size tiny --words 100 --length 20 --json".split())
    (row,) = json.loads(capsys.readouterr().out)
    model = counting.build(
        "attention",
        "tiny",
        encoder_self_mixer="fouriernet,rposnet,attention",
        decoder_self_mixer="attention,rposnet,attention",
        **shape,
    )
    assert row["mixer"] == "fouriernet,rposnet,attention"
    assert row["trained"]["parameters"] == counting.parameter_count(model)
    each = [counting.costs(name, "tiny", 100, 20)[0].operations for name in ("fouriernet", "rposnet", "attention")]
    assert row["trained"]["operations"] == sum(each) // 3
    precompute(model)
    assert row["stored energies"]["parameters"] == counting.parameter_count(model)
    mixers.main("lightconv,attention,attention --crossbars --size tiny --words 100 --markdown".split())
    assert "| lightconv,attention,attention |" in capsys.readouterr().out


def test_costs_on_a_grid(capsys):
    """Of DeiT-S: N = 197 tokens, D = 384 and 50 buckets of 64 features; the size base has D = 512 here."""
    mixers.main("irpe --grid 14x14 --extra-tokens 1 --json".split())
    rows = {row["options"]: row for row in json.loads(capsys.readouterr().out)}
    n, d = 197, 512
    of_attention, of_table = 2 * n**2 * d + 4 * n * d**2, 50 * n * d
    assert rows[""]["parameters"] == 4 * d * (d + 1) + 50 * 64
    assert rows[""]["operations"] == of_attention + of_table
    assert rows["irpe_on=qkv"]["operations"] == of_attention + 3 * of_table
    assert {"irpe_method=cross", "irpe_mode=bias", "irpe_index=clip"} < set(rows)
    assert "irpe_on=k" not in rows  # the default
    mixers.main("--grid 3x4 --size tiny --markdown".split())
    shown = capsys.readouterr().out
    assert all(f"| {name} |" in shown for name in mixer_names(on_grids=True))


@pytest.mark.usefixtures("few")
def test_markdown(capsys):
    mixers.main("--markdown --size tiny --words 100".split())
    lines = capsys.readouterr().out.splitlines()
    (costs,) = [line for line in lines if line.startswith("| rposnet | e d c |")]
    assert "K̂ND + N²D + 4ND²<br>N²D + 3ND²" in costs
    rows = [line.replace("\\|", "") for line in lines if line.startswith("|")]
    assert {row.count("|") for row in rows} == {4, 7}
    mixers.main(["lightconv", "--markdown", "--options"])
    assert "none \\| gelu \\| glu" in capsys.readouterr().out


@every_mixer
def test_options_are_shown_with_defaults_and_equation(name, capsys):
    mixers.main([name, "--options"])
    shown = capsys.readouterr().out
    for option, field in option_fields().items():
        flag = f"--{option.replace('_', '-')} "
        if field.name in get_mixer(name).Config.__dataclass_fields__:
            assert flag in shown
            assert (
                "Eq" in field.metadata["help"]
                or "Section" in field.metadata["help"]
                or "Table" in field.metadata["help"]
            )
        else:
            assert flag not in shown
    has_own_gate = issubclass(get_mixer(name), RecurrentMixer)
    assert (f"--gate none | gelu | glu   default: {get_mixer(name).default_gate}" in shown) != has_own_gate


def test_costs_on_a_large_grid(capsys):
    """Where attention with buckets is computed in blocks."""
    mixers.main("irpe --grid 80x80".split())
    assert "irpe_method=cross" in capsys.readouterr().out


def test_bad_input(capsys):
    for arguments, sentence in (
        (["rposnt"], "there is no such mixer. Choose one of: .* Did you mean rposnet?"),
        (["--options"], "--options: of which mixer?"),
        (["--grid", "14"], "argument --grid: '14': give rows and columns, 1 to 999 each, such as 14x14."),
        (["rposnet", "--options", "--crossbars"], "--options --crossbars: give one of the two."),
        (["rope,shaw", "--options"], "--options rope,shaw: these are several mixers. Give one."),
        ("--crossbars --joules adc=1e-12 adc=2e-12".split(), "--joules: adc is given twice. Give it once."),
        (["rope,,shaw"], "mixers rope,,shaw: a value beside a comma is missing."),
        (["rope,shaw", "--size", "tiny"], "rope,shaw: these are 2 values for 3 layers."),
    ):
        said = refused(capsys, mixers.main, *arguments)
        assert all(part in said for part in sentence.split(".* ")), said
