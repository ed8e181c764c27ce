"""Strict reading of JSON and YAML, and the sentences about values that are not of their type."""

import json
import math
import re
from argparse import Namespace
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml

from posnet_fairseq.shared import schema
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.schema import PlainLoader, TextLoader, check_numbers, read_json, read_yaml
from support.commands import ROOT


@dataclass
class Case:
    lower: bool = False


class Run(msgspec.Struct, forbid_unknown_fields=True):
    seed: Annotated[int, msgspec.Meta(ge=0, lt=10)]
    size: Literal["tiny", "big"] = "tiny"
    scores: dict[str, list[float]] = {}
    case: dict[str, Case] | None = None


def refusal(read, *arguments):
    with pytest.raises(UsageError) as caught:
        read(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", " is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
        ("\udcff", " is no JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte."),
        ('{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}', " is no JSON: 'c' is there twice."),
        ("[" * 100_000, " is no JSON: it is nested too deeply."),
        ("[" * 101 + "]" * 101, " is no JSON: it is nested too deeply."),
        ("NaN", " is no JSON: NaN is no finite number of at most 40 digits."),
        (f"-{'9' * 400}", f" is no JSON: -{'9' * 49} is no finite number of at most 40 digits."),
        ("[1]", ": Expected `object`, got `array`."),
        ("{}", ": Object missing required field `seed`."),
        ('{"seed": 1, "seeds": 2}', ": Object contains unknown field `seeds`."),
        ('{"seed": true}', ": Expected `int`, got `bool` - at `$.seed`."),
        ('{"seed": 10}', ": Expected `int` <= 9 - at `$.seed`."),
        ('{"seed": 1, "size": "small"}', ": Invalid enum value 'small' - at `$.size`."),
        ('{"seed": 1, "scores": {"b": [], "c": [1, "2"]}}', ": Expected `float`, got `str` - at `$.scores[...][1]`."),
        ('{"seed": 1, "case": {"de": {"lower": 1}}}', ": Expected `bool`, got `int` - at `$.case[...].lower`."),
        ('{"seed": 1, "case": 5}', ": Expected `object | null`, got `int` - at `$.case`."),
    ],
)
def test_json_that_is_none_or_not_of_its_type(tmp_path, text, sentence):
    path = tmp_path / "run.json"
    path.write_text(text, errors="surrogateescape")
    assert refusal(read_json, path, Run) == f"{path}{sentence} Correct it."


def test_json_of_its_type(tmp_path):
    path = tmp_path / "run.json"
    for text in ("7", '"a"', "[" * 100 + "]" * 100):
        path.write_text(text)
        assert read_json(path) == json.loads(text)
    path.write_text(
        '{"seed": 1, "scores": {"b": [1, 2.5, -3e2]}, "case": {"de": {"lower": true}}}', encoding="utf-8-sig"
    )
    assert read_json(path, Run) == Run(1, "tiny", {"b": [1.0, 2.5, -300.0]}, {"de": Case(True)})


# Ten aliases of ten aliases of ..., each of which is one value in memory: 10 ** 20 texts.
LAUGHS = "a0: &a0 ha\n" + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 21))
CHAIN = "a: &a0 {}\n" + "\n".join(f"{n}: &a{n + 1} [*a{n}]" for n in range(150))


@pytest.mark.parametrize("loader", [TextLoader, PlainLoader])
@pytest.mark.parametrize(
    "text", [LAUGHS, LAUGHS.replace("ha", "{a: 1}").replace("[", "{<<: [").replace("]", "]}"), "- a\n" * 500 + "- ["]
)
def test_yaml_of_too_many_values_is_refused_soon(monkeypatch, text, loader):
    """Also where << merges what the aliases stand for, and without aliases, before the end is read."""
    monkeypatch.setattr(schema, "_MOST_NODES", 500)
    with pytest.raises(yaml.YAMLError, match="has more than 100,000 values"):
        yaml.load(text, loader)


def test_all_readers_have_the_same_guards():
    """What else calls json.loads has made the text itself, or is run without posnet (machines.py)."""
    for folder in ("posnet_fairseq", "eval", "data_prep"):
        for path in (ROOT / folder).rglob("*.py"):
            found = re.findall(r"(?:json\.loads?|json\.decode|yaml\.\w*load)\(.*", path.read_text(encoding="utf-8"))
            others = [each for each in found if not each.startswith("json.loads(json.dumps(")]
            assert not others or path.name in ("schema.py", "comet.py", "machines.py"), path
            assert path.name != "comet.py" or all("PlainLoader" in each for each in others)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed: [", " is not YAML in line 1: expected the node content, but found '<stream end>'."),
        ("seed: 1\nsize: big\nseed: 1", " is not YAML in line 3: 'seed' is there twice."),
        ("scores: &a {x: *a}", " is not YAML in line 1: found unconstructable recursive node."),
        ("[" * 5000, " is not YAML: it is nested too deeply."),
        ("[" * 101 + "]" * 101, " is not YAML: it is nested too deeply."),
        (LAUGHS, " is not YAML: it has more than 100,000 values, with its aliases in full."),
        (CHAIN, " is not YAML: it is nested too deeply."),
        (f"seed: {'9' * 400}", ": Expected `int` <= 9 - at `$.seed`."),
    ],
)  # fmt: skip
def test_yaml_that_is_none_or_not_of_its_type(tmp_path, text, sentence):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert refusal(read_yaml, path, Run) == f"{path}{sentence} Correct it."


def test_yaml_of_its_type(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 1\nscores: {&b b: &scores [1, 7e-4], c: *scores}\ncase: {de: {lower: true}}")
    assert read_yaml(path, Run) == Run(1, "tiny", {"b": [1.0, 7e-4], "c": [1.0, 7e-4]}, {"de": Case(True)})
    path.write_text("a: {<<: {b: 1, c: off}, b: 2}\nd: [12:30, 2024-13-45, 1.5, 1e9, off]")
    found = read_yaml(path, dict[str, Any], PlainLoader)
    assert found == {"a": {"b": 2, "c": False}, "d": ["12:30", "2024-13-45", 1.5, "1e9", False]}


def test_a_number_out_of_range_is_named():
    check_numbers(Namespace(max_length=[1, 2.5, 1000]), max_length=(1, 1000))
    for number, shown in (0, "0"), (1001, "1001"), (math.nan, "nan"), (math.inf, "inf"), ([5, -3], "-3"):
        with pytest.raises(UsageError, match=rf"^--max-length {shown}: give 1 or more, and at most 1,000\.$"):
            check_numbers(Namespace(max_length=number), max_length=(1, 1000))
