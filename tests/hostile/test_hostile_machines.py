"""Recipes, used carelessly: whatever is wrong is refused before anything is prepared, trained or written."""

import shlex

from posnet_data_prep.datasets import DATASETS
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.runs.run_settings import known_architectures, known_datasets
from support import commands
from support.hostile import ENDS, Row, play, table

RECIPES = shlex.quote(str(commands.ROOT / "recipes"))
# Variables that would otherwise come from outside.
NONE = dict.fromkeys(("NODES", "NODE_RANK", "GPUS", "CPUS", "OPTIONS", "NAME", "MASTER_PORT", "DRY_RUN"))


def refused(name, says, recipe="corpus", arguments="", before=lambda folder: None, **settings):
    """A row of a recipe that is refused."""
    settings = {"DATA": "data", "RUNS": "runs"} | settings if recipe in ("corpus", "compare") else settings
    environment = tuple((NONE | settings).items())
    return Row(name, f"bash {RECIPES}/{recipe}.sh {arguments}", says, ENDS, before, environment=environment)


def file(name, content=b"dear"):
    """What writes a file into a folder."""
    return lambda folder: (folder / name).write_bytes(content)


BAD_BETAS = ("0.9", "0.9,0.98", "(0.9)", "(0.9,0.98", "(0.9,1)", "(0.9,0.98,0.99)", "(a,b)", "(0.9,-1)", "exit()")
NUMBERS = ("TOKENS", "MAX_TOKENS", "UPDATES", "INTERVAL", "AVERAGE", "WARMUP", "MAX_POSITIONS", "BEAM")
ROWS = [
    refused("dataset outside", r"DATASET=\.\./\.\./etc: choose one of iwslt14", DATA="", DATASET="../../etc"),
    refused("dataset above", r"DATASET=\.\.: choose one of iwslt14", DATA="", DATASET=".."),
    refused("absolute dataset", "DATASET=/etc: choose one of iwslt14", DATA="", DATASET="/etc"),
    refused("dataset that is there, by its path", r"DATASET=x/\.\.: give the name of a dataset", DATASET="x/.."),
    refused("unknown dataset", "DATASET=wmt14.de-en: choose one of .*wmt14.en-de", DATA="", DATASET="wmt14.de-en"),
    refused("no dataset", "no data is named", DATA="", DATASET=""),
    refused("unknown dataset of a recipe", "wmt14.en-de: error: DATASET=x: choose", recipe="wmt14.en-de", DATASET="x"),
    refused("data that are a file", "DATA=.*model.pt is a file", DATA="model.pt"),
    refused("data with a colon", "DATA=.*/da:ta: fairseq takes a colon", DATA="da:ta"),
    refused("data with an interpolation", r"DATA=.*x\}: fairseq reads \$\{", DATA="${x}"),
    refused("runs with an interpolation", r"RUNS=.*x\}/runs: fairseq reads \$\{", RUNS="${x}/runs"),
    refused("runs with a last backslash", r"RUNS=.*runs\\: fairseq reads .* a last backslash", RUNS="runs\\"),
    refused("data to make with a comma", r"DATA=.*a,b: fairseq takes a comma", recipe="wmt14.en-de", DATA="a,b"),
    refused("unknown mixer", "MIXER=nope: choose one of .*rposnet", MIXER="nope"),
    refused("several mixers", "name one mixer", MIXER="rposnet\nshaw"),
    refused("mixer by its other name", "MIXER=attention: choose one of .*transformer_pos", MIXER="attention"),
    refused("mixer that is a pattern", "name one mixer", MIXER="*"),
    refused("name with a slash", "NAME=a/b: give a name", NAME="a/b"),
    refused("name above", r"NAME=\.\.: give a name", NAME=".."),
    refused("name with a line end", "give a name of letters", NAME="a\nb"),
    refused("name that is too long", "at most 200", NAME="a" * 201),
    refused("runs in a file", "RUNS=.*model.pt/x: .*model.pt is no folder", RUNS="model.pt/x"),
    refused("runs that are a file", "RUNS=.*model.pt: .*model.pt is no folder", RUNS="model.pt"),
    refused("run that is a file", "rposnet_tiny_s1 is no folder that can be written", SIZE="tiny", RUNS="text",
            before=lambda folder: [(folder / "text/data").mkdir(), file("text/data/rposnet_tiny_s1")(folder)]),
    refused("quotes in options", "quotes are not understood", OPTIONS='--user-dir "x"'),
    refused("backslash in options", "quotes are not understood", OPTIONS="--x a\\ b"),
    refused("options in lines that are the recipe's", "--seed=3 has a variable", OPTIONS="--dropout 0\n--seed=3"),
    refused("no number of machines", "NODES=x: give a whole number", NODES="x"),
    refused("machine that there is not", "NODE_RANK=1: with NODES=1, give 0 to 0", NODE_RANK="1"),
    refused("third of two machines", "NODE_RANK=2: with NODES=2, give 0 to 1", NODE_RANK="2", NODES="2"),
    refused("octal machine", "NODE_RANK=08: give 0, 1", NODE_RANK="08", NODES="9"),
    refused("port that is none", "MASTER_PORT=65536: give a whole number", MASTER_PORT="65536"),
    refused("precision", "PRECISION=int8: choose one of", PRECISION="int8"),
    refused("processes", "CPUS=many: give a whole number", CPUS="many"),
    refused("negative processes", "CPUS=-1: give a whole number", CPUS="-1"),
    refused("no GPUs", "GPUS=0: give a whole number", GPUS="0"),
    refused("no learning", "LR=0.0: give a number above 0", LR="0.0"),
    refused("negative learning rate", "LR=-1: give a number", LR="-1"),
    refused("more smoothing than there is", "LABEL_SMOOTHING=5: give a number below 1", LABEL_SMOOTHING="5"),
    refused("metrics without a name", "METRICS=,: choose from", METRICS=","),
    refused("metrics in lines", "choose from bleu", METRICS="bleu\nblue"),
    refused("metrics that are a pattern", r"METRICS=\*: choose from", METRICS="*"),
    refused("size in capitals", "SIZE=Base: choose one of tiny", SIZE="Base"),
    refused("stage that there is not", "trian: choose from prepare train", arguments="trian"),
    refused("option that there is not", "--dry-rum: there is no such option.*--dry-run", arguments="--dry-rum"),
    refused("quickstart with an argument", "takes no arguments", recipe="quickstart", arguments="fast"),
    refused("quickstart with an unknown mixer", "MIXERS=nope: choose", recipe="quickstart", MIXERS="rposnet nope"),
    refused("folder as text", "text: there is no such file", recipe="lm", arguments="text"),
    refused("option as text", "--fast: there is no such option", recipe="lm", arguments="--fast"),
    refused("seeds that are none", "LM_SEED=1 2: give a whole number", recipe="lm", LM_SEED="1 2"),
    refused("three files of systems", "3 files were given", recipe="compare", arguments="a b c"),
    refused("comparison with an unknown dataset", "DATASET=x: choose", recipe="compare", DATA="", DATASET="x"),
    refused("comparison whose runs are a file", "is no folder", recipe="compare", RUNS="model.pt"),
    *(refused(f"betas {betas}", "ADAM_BETAS=.*: give two numbers below 1", ADAM_BETAS=betas) for betas in BAD_BETAS),
    *(refused(f"{name} of nothing", f"{name}=0: give a whole number", SIZE="tiny", **{name: "0"}) for name in NUMBERS),
    *(refused(f"{name} in words", f"{name}=ten: give a whole", SIZE="tiny", **{name: "ten"}) for name in NUMBERS),
]  # fmt: skip
SHOWN = [
    Row(f"help of {name}", f"bash {RECIPES}/{name}.sh --help", rf"^[^#]*(recipes/{name}.sh|MIXER=)", 0)
    for name in ("corpus", "compare", "quickstart", "lm", "wmt14.en-de", "wmt14.en-fr", "wmt18.en-zh", "iwslt14.de-en")
]


@table(ROWS + SHOWN)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def test_recipes_know_what_there_is():
    assert sorted(known_architectures()) == sorted({get_mixer(name).arch for name in mixer_names()})
    assert sorted(known_datasets()) == sorted(DATASETS)
