"""posnet-translate and its kin: options, ensembles, and what belongs to a checkpoint."""

import io
import json
import math
import shlex
import shutil

import sentencepiece
import torch
from sentencepiece import sentencepiece_model_pb2

from support import commands
from support.damaged import changed, one, tar, weight
from support.hostile import Row, play, table, write

TRANSLATE = "posnet-translate model.pt --input text/test.xx"
QUICK = "--beam 1 --max-len-b 2"


def option(given, says, name=None):
    return Row(name or given, f"{TRANSLATE} {given}", says)


OPTIONS = [
    option("--max-len-a nan", "--max-len-a nan: give 0 or more, and at most 1,000,000"),
    option("--max-len-b 0", "--max-len-b 0: give 1 or more"),
    option("--lenpen nan", "--lenpen nan: give -10 or more, and at most 10"),
    option("--lenpen 400", "--lenpen 400.0: give -10 or more", "a length penalty that overflows"),
    option("--beam 1000000000", "--beam 1000000000: give 1 or more, and at most 10,000"),
    option("--beam 40", "--beam 40: the target dictionary has .. entries. Give less", "more than the vocabulary"),
    option("--processes 1000000", "--processes 1000000: give 1 or more, and at most 1,000"),
    option("--min-len 201", "--min-len 201: the translations of this batch end after .* tokens at most"),
    option("--sampling-topk 5", "--sampling-topk 5: beam search does not read it. Give --sampling too"),
    option("--sampling --sampling-topk 5 --sampling-topp .5", "--sampling-topk 5 and --sampling-topp 0.5: give one"),
    option("--beam 4 --nbest 5", "--nbest 5: give 1 or more, and at most 4"),
    option("--prefix text/train.xx", "--prefix: 300 are given for 12 lines. Give one for each, which may be empty"),
    option("--max-len-b 3 --prefix text/test.yy", "a beginning of .* tokens is given, and the translations of this"),
    option("--prefix - --input -", "--prefix - and --input -: standard input can be one of them"),
    option("--stream --prefix text/test.xx", "--prefix text/test.xx with --stream: leave one of the two out"),
    option("--stream --output out", "--output out: --stream writes to pipes, line by line"),
    option("--resume", "--resume goes on with a file: give one by --output"),
    option("--shortlist text/test.xx", "text/test.xx is damaged or no shortlist"),
    Row("texts of a translation model", "posnet-generate model.pt", "a translation model. Give a language model"),
    Row("translations of a language model", "posnet-translate lm/model.pt", "a language model.* for posnet-generate"),
    Row(
        "a shortlist of a language model",
        "posnet-export lm/model.pt --out new --shortlist-from data --pretokenized",
        "--shortlist-from data: a language model translates no words",
    ),
    Row(
        "a shortlist from no data",
        "posnet-export model.pt --out new --shortlist-from text",
        "text holds no binarized training set",
    ),
    Row("before the model is loaded", "posnet-translate none.pt --lenpen nan", "--lenpen nan: give"),
    Row("a bonus for length", f"{TRANSLATE} {QUICK} --lenpen=-1 --output out", "12 sentences", 0, makes=("out",)),
    Row("mixers without words", "posnet-mixers --words 0", "--words 0: give 5 or more"),
    Row("a bench of a billion", "posnet-bench models --sentences 1000000000", "--sentences 1000000000: give 1 or more"),
]


def copied_data(change):
    """What makes other.pt, a model that was trained on other/, a copy of the data that is changed."""

    def before(folder):
        shutil.copytree(folder / "data", folder / "other")
        change(folder / "other")
        changed(lambda state: state["cfg"]["task"].update(data="other"), target="other.pt")(folder)

    return before


def shuffled(folder):
    """The same words in another order, in both dictionaries, which are one."""
    lines = (folder / "dict.xx.txt").read_text().splitlines(keepends=True)
    text = "".join(reversed(lines[:20])) + "".join(lines[20:])
    for language in ("xx", "yy"):
        (folder / f"dict.{language}.txt").unlink()
        (folder / f"dict.{language}.txt").write_text(text)


def other_languages(folder):
    changed(lambda state: state["cfg"]["task"].update(source_lang="yy", target_lang="xx"), target="other.pt")(folder)


def shorter(folder):
    """The same model with fewer positions; its data is gone."""

    def cut(state):
        state["cfg"]["task"]["data"] = "gone"
        for part in ("model", "task"):
            state["cfg"][part] |= {"max_source_positions": 9, "max_target_positions": 9}
        for side in ("encoder", "decoder"):
            state["model"][f"{side}.positions.weight"] = state["model"][f"{side}.positions.weight"][:9].clone()

    changed(cut, target="other.pt")(folder)


# Models whose weights are finite, but some of what they compute is not: in 16 bits, and in 32 bits either.
in_float16 = weight(lambda w: 1e6 * w, target="large.pt")
huge = weight(lambda w: torch.full_like(w, 3e38), target="large.pt")
QUERIES = "encoder.layers.0.self_attn.energies.0.query_proj.weight"
huge_energies = weight(lambda w: torch.full_like(w, 3e38), QUERIES, target="large.pt")


ENSEMBLE = f"posnet-translate model.pt other.pt --input text/test.xx {QUICK}"
NO_ENSEMBLE = "model.pt and other.pt make no ensemble: "
LARGE = f"posnet-translate large.pt --input text/test.xx {QUICK}"
INFINITE = "become infinite or no numbers, so there is no translation. "
ENSEMBLES = {  # what makes other.pt, and what is said; None: both translate together
    "other languages": (other_languages, f"{NO_ENSEMBLE}the first translates xx-yy, the second yy-xx"),
    "other words": (copied_data(shuffled), "the dictionary other/dict.xx.txt, which differs from data/dict.xx.txt"),
    "one of them diverged": (weight(one(math.nan), target="other.pt"), "other.pt: the weight .* is infinite or NaN"),
    "the same words elsewhere": (copied_data(lambda folder: None), None),
    "other lengths": (shorter, None),
}
MODELS = [
    Row(name, ENSEMBLE, says, before=before)
    if says
    else Row(name, f"{ENSEMBLE} --on-long truncate --output out", "12 sentences", 0, before, ("out",))
    for name, (before, says) in ENSEMBLES.items()
]
MODELS += [
    Row(
        "another dictionary",
        f"{TRANSLATE} --data other",
        "was trained with the dictionary data/dict.xx.txt, which differs from other/dict.xx.txt",
        before=copied_data(shuffled),
    ),
    Row("infinite in 16 bits", f"{LARGE} --dtype fp16", f"{INFINITE}Choose --dtype float32", before=in_float16),
    Row("finite in 32 bits", f"{LARGE} --output out", "12 sentences", 0, in_float16, ("out",)),
    Row("infinite in 32 bits", LARGE, f"{INFINITE}Take an earlier checkpoint", before=huge),
    Row(
        "a picture of what is infinite",
        "posnet-plot weights large.pt --sentence 'a1 a2' --out figures",
        f"{INFINITE}Take an earlier checkpoint",
        before=huge,
    ),
    Row(
        "tables of infinite energies",
        "posnet-precompute large.pt --out out.pt",
        "large.pt: its tables would hold infinite numbers or none in torch.float32",
        before=huge_energies,
    ),
    Row(
        "no length serves",
        "posnet-precompute other.pt --data data --out out.pt --max-length 11",
        "has a sentence of 11 tokens .* trained with --max-source-positions 9, so no length serves. Leave --max-length",
        before=shorter,
    ),
]


def card(**entries):
    """What changes the card; None removes an entry."""

    def before(folder):
        path = folder / "data/dataset.json"
        content = json.loads(path.read_text()) | entries
        write("data/dataset.json", {name: value for name, value in content.items() if value is not None})(folder)

    return before


def words(**options):
    return card(words={"xx": options, "yy": {}})


def pieces(cut=None):
    """What makes piece.model, a model of sentencepiece, of which so many bytes are there."""

    def before(folder):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter((folder / "text/train.xx").read_text().splitlines()),
            model_writer=model,
            model_type="bpe",
            vocab_size=30,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            minloglevel=2,
        )
        (folder / "piece.model").write_bytes(model.getvalue()[:cut])

    return before


def cut_between_pieces(folder):
    """sentencepiece itself reads what is left as a smaller model."""
    pieces()(folder)
    proto = sentencepiece_model_pb2.ModelProto.FromString((folder / "piece.model").read_bytes())
    for field in ("trainer_spec", "normalizer_spec"):
        proto.ClearField(field)
    (folder / "piece.model").write_bytes(proto.SerializeToString())
    assert sentencepiece.SentencePieceProcessor(model_file=str(folder / "piece.model")).vocab_size()


def lines_of(name, change):
    """What changes the lines of a file."""

    def before(folder):
        write(name, "".join(change((folder / name).read_text().splitlines(keepends=True))))(folder)

    return before


def as_directory(name):
    def before(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return before


PIECES = f"{TRANSLATE} --sentencepiece-model piece.model"
CODES = f"{TRANSLATE} --bpe-codes codes"
BAD_PIECES, BAD_CODES = "piece.model is damaged or no sentencepiece model", "codes holds no BPE codes as subword-nmt"
BAD_DICTIONARY, BAD_CARD = "data/dict.xx.txt is no dictionary as", "data/dataset.json is no card of a dataset"
FORMAT, CHANGED = "Incorrect dictionary format", "is not the file that data/dataset.json was made with"
COMPANIONS = [
    ("sentencepiece but for the last byte", PIECES, BAD_PIECES, pieces(-1)),
    ("sentencepiece cut between pieces", PIECES, BAD_PIECES, cut_between_pieces),
    ("a text for sentencepiece", PIECES, BAD_PIECES, write("piece.model", "hello world\n" * 9)),
    ("a text for codes", CODES, f"{BAD_CODES}.*invalid line 1", write("codes", "a text of words\n" * 9)),
    ("no codes", CODES, BAD_CODES, write("codes", "")),
    ("a version without codes", CODES, BAD_CODES, write("codes", "#version:")),
    ("a directory for codes", f"{TRANSLATE} --bpe-codes text", "text is a directory. Give a file in it", lambda _: 0),
    ("codes cut short", TRANSLATE, CHANGED, lines_of("data/codes.bpe", lambda lines: lines[:-1])),
    ("a card that names no codes", TRANSLATE, "data/none: there is no such file", card(bpe_codes="none")),
    ("a card of files elsewhere", TRANSLATE, f"{BAD_CARD}: it names the file ../../e", card(bpe_codes="../../e")),
    (
        "a card of files of numbers",
        TRANSLATE,
        f"{BAD_CARD}: bpe_codes.xx is 5, it should be",
        card(bpe_codes={"xx": 5}),
    ),
    ("a card of no subwords", TRANSLATE, f"{BAD_CARD}: .*sentencepiece_model", card(bpe_codes=None)),
    ("a card that is a list", TRANSLATE, f"{BAD_CARD}: it is .1., it should be", write("data/dataset.json", [1])),
    ("a card without end", TRANSLATE, f"{BAD_CARD}: it is nested too", write("data/dataset.json", "[" * 10**6)),
    ("a card that is a directory", TRANSLATE, "data/dataset.json is a directory", as_directory("data/dataset.json")),
    ("an unknown tokenizer", TRANSLATE, "no tokenizer 'mosses'. Choose one of", words(tokenizer="mosses")),
    ("a tokenizer of numbers", TRANSLATE, f"{BAD_CARD}: words.xx.tokenizer is 7, it sh", words(tokenizer=7)),
    ("a card of other languages", TRANSLATE, "says how de and yy are split into tokens, and", card(source_lang="de")),
    ("a dictionary of text", TRANSLATE, f"{BAD_DICTIONARY}.*{FORMAT}", write("data/dict.xx.txt", "hello\n")),
    (
        "a word twice",
        TRANSLATE,
        f"{BAD_DICTIONARY}.*Duplicate",
        lines_of("data/dict.xx.txt", lambda all: [*all, all[0]]),
    ),
    ("a directory for a dictionary", TRANSLATE, "dict.xx.txt is a directory", as_directory("data/dict.xx.txt")),
]
COMPANIONS = [Row(name, command, says, before=before) for name, command, says, before in COMPANIONS]

# fairseq's own commands, each in a process of its own.
USER = f"--user-dir {shlex.quote(commands.USER_DIR)}"
GENERATE = f"fairseq-generate data --path bad.pt --cpu --required-batch-size-multiple 1 {USER}"
FAIRSEQ = [
    Row("fairseq-generate with a tar", GENERATE, "bad.pt is damaged or no checkpoint", before=tar),
    Row(
        "fairseq-train with a dictionary of text",
        f"fairseq-train data --arch rposnet_tiny --batch-size 8 --save-dir new {USER}",
        f"{BAD_DICTIONARY}.*{FORMAT}",
        makes=("new",),
        before=write("data/dict.xx.txt", "hello\n"),
    ),
    Row(
        "fairseq-interactive with half of sentencepiece",
        f"fairseq-interactive data --path model.pt --cpu {USER} --bpe sentencepiece --sentencepiece-model piece.model",
        BAD_PIECES,
        before=pieces(-1),
        stdin="a1\n",
    ),
]


@table(OPTIONS + MODELS + COMPANIONS + FAIRSEQ)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
