"""posnet-translate and its kin: options, ensembles, and what belongs to a checkpoint."""

import json
import shutil

import sentencepiece
import torch
from sentencepiece import sentencepiece_model_pb2

from posnet_fairseq.shared.records import digest
from support.damaged import changed, weight
from support.hostile import Row, play, table, write
from support.tiny_models import sentencepiece_model

TRANSLATE = "posnet-translate model.pt --input text/test.xx"
QUICK = "--beam 1 --max-len-b 2"


def option(given, says, name=None):
    return Row(name or given, f"{TRANSLATE} {given}", says)


OPTIONS = [
    option("--beam 40", "--beam 40: the target dictionary has .. entries. Give less", "more than the vocabulary"),
    option("--sampling --sampling-topk 5 --sampling-topp .5", "--sampling-topk 5 and --sampling-topp 0.5: give one"),
    option("--prefix - --input -", "--prefix - and --input -: standard input can be one of them"),
    option("--terms - --input -", "--terms - and --input -: standard input can be one of them"),
    option(
        "--terms text/test.yy", "--terms text/test.yy, line 1, is '.*'. Give a source term, a tab and a target term"
    ),
    option(
        "--terms terms --score-translations text/test.yy", "--score-translations text/test.yy with --terms: nothing"
    ),
    option(
        "--terms terms --constraints wanted", "--terms with --constraints: both say what a translation must contain"
    ),
    option("--constraints wanted --sampling", "--constraints with --sampling: samples are drawn without looking for"),
    Row("texts of a translation model", "posnet-generate model.pt", "a translation model. Give a language model"),
    Row("translations of a language model", "posnet-translate lm/model.pt", "a language model.* for posnet-generate"),
    Row(
        "a shortlist of a language model",
        "posnet-export lm/model.pt --out new --shortlist-from data --pretokenized",
        "--shortlist-from: lm/model.pt is a language model, and this is for translation models",
    ),
    Row("before the model is loaded", "posnet-translate none.pt --lenpen nan", "--lenpen nan: give"),
    Row("a bonus for length", f"{TRANSLATE} {QUICK} --lenpen=-1 --output out", "12 sentences", 0, makes=("out",)),
]


def copied_data(change):
    """What makes other.pt, a model that was trained on other/, a copy of the data that is changed."""

    def before(folder):
        shutil.copytree(folder / "data", folder / "other")
        change(folder / "other")
        changed(lambda state: state["cfg"]["task"].update(data="other"), target="other.pt")(folder)

    return before


def of_other_data(folder):
    """A dataset with the same words in another order, in both dictionaries, which are one."""
    shuffled(folder)
    card = json.loads((folder / "dataset.json").read_text())
    for language in ("xx", "yy"):
        card["files"][f"dict.{language}.txt"]["sha256"] = digest(folder / f"dict.{language}.txt")
    write("dataset.json", card)(folder)


def shuffled(folder):
    """The same, without the knowledge of the card."""
    lines = (folder / "dict.xx.txt").read_text().splitlines(keepends=True)
    text = "".join(reversed(lines[:20])) + "".join(lines[20:])
    for language in ("xx", "yy"):
        (folder / f"dict.{language}.txt").unlink()
        (folder / f"dict.{language}.txt").write_text(text)


def shorten(state):
    """The same model with fewer positions; its data is gone."""
    state["cfg"]["task"]["data"] = "gone"
    for part in ("model", "task"):
        state["cfg"][part] |= {"max_source_positions": 9, "max_target_positions": 9}
    for side in ("encoder", "decoder"):
        state["model"][f"{side}.positions.weight"] = state["model"][f"{side}.positions.weight"][:9].clone()


other_languages = changed(
    lambda state: state["cfg"]["task"].update(source_lang="yy", target_lang="xx"), target="other.pt"
)
# Models whose weights are finite, but some of what they compute is not: in 16 bits, and in 32 bits either.
in_float16 = weight(lambda w: 1e6 * w, target="large.pt")
huge = weight(lambda w: torch.full_like(w, 3e38), target="large.pt")
QUERIES = "encoder.layers.0.self_attn.energies.0.query_proj.weight"
huge_energies = weight(lambda w: torch.full_like(w, 3e38), QUERIES, target="large.pt")


ENSEMBLE = f"posnet-translate model.pt other.pt --input text/test.xx {QUICK}"
NO_ENSEMBLE = "model.pt and other.pt make no ensemble: "
LARGE = f"posnet-translate large.pt --input text/test.xx {QUICK}"
INFINITE = "become infinite or NaN, so there is no translation. "
TOGETHER = (f"{ENSEMBLE} --on-long truncate --output out", "12 sentences", 0)
OTHER_WORDS = "was trained with the dictionary {}/dict.xx.txt, which differs from {}/dict.xx.txt"
MODELS = [
    Row("other languages", ENSEMBLE, f"{NO_ENSEMBLE}the first translates xx-yy, the second yy-xx", 2, other_languages),
    Row("other words", ENSEMBLE, OTHER_WORDS.format("other", "data"), before=copied_data(of_other_data)),
    Row("the same words elsewhere", *TOGETHER, copied_data(lambda folder: None), ("out",)),
    Row("other lengths", *TOGETHER, changed(shorten, target="other.pt"), ("out",)),
    Row(
        "another dictionary",
        f"{TRANSLATE} --data other",
        OTHER_WORDS.format("data", "other"),
        before=copied_data(of_other_data),
    ),
    Row(
        "a dictionary that was exchanged",
        TRANSLATE,
        "data/dict.xx.txt is not the file that data/dataset.json was made with. Copy it again",
        before=lambda folder: shuffled(folder / "data"),
    ),
    Row("infinite in 16 bits", f"{LARGE} --dtype fp16", f"{INFINITE}Choose --dtype float32", before=in_float16),
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
        "large.pt: its tables would hold infinity or NaN in torch.float32",
        before=huge_energies,
    ),
]


def without_codes(folder):
    """The card names a file that is not there."""
    path = folder / "data/dataset.json"
    write("data/dataset.json", json.loads(path.read_text()) | {"bpe_codes": "none"})(folder)


def cut_between_pieces(folder):
    """sentencepiece itself reads what is left as a smaller model."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(sentencepiece_model())
    for field in ("trainer_spec", "normalizer_spec"):
        proto.ClearField(field)
    write("piece.model", proto.SerializeToString())(folder)
    assert sentencepiece.SentencePieceProcessor(model_file=str(folder / "piece.model")).vocab_size()


PIECES = f"{TRANSLATE} --sentencepiece-model piece.model"
CODES = f"{TRANSLATE} --bpe-codes codes"
BAD_PIECES, BAD_CODES = "piece.model is damaged or no sentencepiece model", "codes holds no BPE codes as subword-nmt"
COMPANIONS = [
    Row("sentencepiece cut between pieces", PIECES, BAD_PIECES, before=cut_between_pieces),
    Row(
        "codes of other data",
        CODES,
        "--bpe-codes codes is not codes.bpe, which data/dataset.json says that the text was split by. Leave the option",
        before=write("codes", "#version: 0.2\na 1</w>\n"),
    ),
    Row(
        "pieces for a model of codes",
        PIECES,
        "--sentencepiece-model piece.model is not codes.bpe, which data/dataset.json says that the text was split by",
        before=write("piece.model", sentencepiece_model()),
    ),
    Row(
        "codes of the data under another name",
        f"{CODES} {QUICK} --output out",
        "12 sentences",
        0,
        lambda folder: shutil.copy(folder / "data/codes.bpe", folder / "codes"),
        ("out",),
    ),
    Row("a text for codes", CODES, f"{BAD_CODES}.*invalid line 1", before=write("codes", "a text of words\n" * 9)),
    Row("a card that names no codes", TRANSLATE, "data/none: there is no such file", before=without_codes),
    Row(
        "fairseq-interactive with half of sentencepiece",
        "fairseq-interactive data --path model.pt --cpu --bpe sentencepiece --sentencepiece-model piece.model",
        BAD_PIECES,
        before=write("piece.model", sentencepiece_model()[:-1]),
    ),
]


@table(OPTIONS + MODELS + COMPANIONS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
