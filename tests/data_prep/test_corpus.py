"""posnet-prepare corpus: sentence pairs of one's own."""

import gzip
import json

import numpy as np
import pytest

from posnet_data_prep import prepare
from posnet_data_prep.pipeline import publish
from posnet_data_prep.pipeline.sets import usual_scripts
from posnet_fairseq.text.binary_format import read_tokens
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.text.pipeline import pipeline_of
from posnet_fairseq.text.tokenizers import lost_symbols
from support import archives, commands, markup

PAIRS = [
    (f"The cat number {n} sleeps under the old house.", f"Die Katze Nummer {n} schläft unter dem alten Haus.")
    for n in range(60)
]


def write(path, lines, compress=bytes):
    path.write_bytes(compress(archives.text(lines)))
    return path


def write_pairs(folder, pairs=PAIRS, stem="my", languages=("en", "de")):
    return [write(folder / f"{stem}.{name}", [pair[i] for pair in pairs]) for i, name in enumerate(languages)]


@pytest.fixture
def files(tmp_path):
    return write_pairs(tmp_path)


def make(folder, *arguments, name="data", subwords=("--merges", "50")):
    prepare.main(["corpus", *subwords, "--workers", "1", "--out", str(folder / name), *map(str, arguments)])
    return folder / name


def text_of(data, name):
    return (data / name).read_bytes().decode()


def contents(data):
    """All of a dataset but what has times in it."""
    return {p.name: p.read_bytes() for p in data.iterdir() if p.is_file() and p.name != "dataset.json"}


@pytest.mark.parametrize("form", ["tsv", "tsv.gz", "xml.gz"])
def test_every_form_gives_the_same(files, tmp_path, form):
    """Other forms are those of tests/text/test_plain_text.py, read by the same function."""
    plain = make(tmp_path, "--train", *files, "--valid-every", "23", name="plain")
    if form == "xml.gz":
        texts = {path: markup.xml(path.read_text().splitlines()) for path in files}
        given = [write(path.with_name(f"{path.name}.{form}"), texts[path], gzip.compress) for path in files]
    else:
        lines = ["\t".join(pair) for pair in PAIRS]
        given = [write(tmp_path / f"my.{form}", lines, gzip.compress if form == "tsv.gz" else bytes)]
        given += ["--source-lang", "en", "--target-lang", "de"]
    assert contents(make(tmp_path, "--train", *given, "--valid-every", "23")) == contents(plain)


def test_several_files_and_sets_of_ones_own(files, tmp_path):
    valid = [write(tmp_path / f"valid.{name}", ["One.", "", "A B C D E F G H I J."]) for name in ("en", "de")]
    data = make(tmp_path, "--train", *files, *files, "--train", *files, "--valid", *valid, "--test", *valid, "-s", "en")
    card = json.loads(text_of(data, "dataset.json"))
    assert card["sentences"] == {"train": 180, "valid": 3, "test": 3}, "sets that are given are not cleaned"
    assert text_of(data, "valid.bpe.de").split("\n")[1] == ""
    assert card["source_lang"] == "en"


@pytest.mark.parametrize("tokenizer", ["jieba", "characters"])
def test_chinese(tmp_path, tokenizer):
    given = write_pairs(tmp_path, archives.sentences("en", "zh", 80, 1), languages=("en", "zh"))
    options = f"--valid-every 5 --tokenizer {tokenizer} --merges 90 30 --max-ratio 4".split()
    data = make(tmp_path, "--train", *given, *options)
    words = text_of(data / "stages/tokenise", "train.zh").split("\n")[0].split()
    assert (max(map(len, words)) == 1) == (tokenizer == "characters")
    lines = text_of(data, "valid.zh").split("\n")[:-1]
    decoded = [pipeline_of(data, ("en", "zh")).decode(line) for line in text_of(data, "valid.bpe.zh").split("\n")[:-1]]
    assert [line.replace(" ", "") for line in decoded] == [line.replace(" ", "") for line in lines]


@pytest.mark.parametrize("subwords", ["--tokenizer characters --merges 90 30", "--subwords sentencepiece --pieces 90"])
def test_special_symbols_in_text_are_text(tmp_path, subwords):
    """Also where they are frequent, so that subwords join their characters: no sentence ends within a line."""
    symbols = [f"a {symbol} b{symbol}" for symbol in ("</s>", "<pad>", "<s>", "<unk>") for _ in range(30)]
    pairs = archives.sentences("en", "zh", 80, 1) + [(line, line) for line in symbols]
    given = write_pairs(tmp_path, pairs, languages=("en", "zh"))
    data = make(tmp_path, "--train", *given, "--valid-every", "9", *subwords.split(), "--max-ratio", "9", subwords=())
    found = (text_of(data, "train.bpe.en") + text_of(data, "train.bpe.zh")).split()
    assert ("</s>" in found) == ("characters" in subwords), "else nothing is tested"
    for language in ("en", "zh"):
        tokens, sizes = read_tokens(data / f"train.en-zh.{language}")
        ends = np.cumsum(sizes) - 1
        assert (tokens[ends] == 2).all()
        assert (np.delete(tokens, ends) >= 3).all()
    dictionary, pipeline = Dictionary.load(data / "dict.en.txt"), pipeline_of(data, ("en", "zh"))
    assert min(dictionary.ids_of(pipeline.encode(symbols[0]))[:-1]) >= 3


def test_nothing_of_an_earlier_dataset_stays(files, tmp_path, monkeypatch):
    """Not even if putting the new one there is interrupted."""
    data = make(tmp_path, "--train", *files, "--valid-every", "23", "--test", *files)
    assert (data / "test.en").exists()
    link, count = publish._link, iter(range(100))

    def stops(*paths):
        if next(count) == 3:
            raise RuntimeError
        link(*paths)

    monkeypatch.setattr(publish, "_link", stops)
    with pytest.raises(RuntimeError):
        make(tmp_path, "--train", *files, "--valid-every", "9")
    assert not (data / "dataset.json").exists()
    monkeypatch.undo()
    make(tmp_path, "--train", *files, "--valid-every", "9")
    assert not list(data.glob("test*"))
    assert set(contents(data)) == set(json.loads(text_of(data, "dataset.json"))["files"])


def test_a_file_that_was_edited_is_not_lost(files, tmp_path, capsys):
    arguments = ("--train", *files, "--valid-every", "23")
    data = make(tmp_path, *arguments)
    edited = data / "valid.de"
    edited.unlink()  # not in place: stages have the same file
    write(edited, ["mine"])
    said = commands.refused(capsys, lambda words: make(tmp_path, *words), *arguments)
    assert f"{edited} was changed since posnet-prepare made it. Move it away, and run again." in said
    edited.rename(tmp_path / "mine")
    make(tmp_path, *arguments)
    assert edited.read_text() != "mine\n"


def test_a_model_folder_is_no_dataset_that_was_changed(files, tmp_path, capsys):
    model = tmp_path / "model"
    model.mkdir()
    write(model / "dict.en.txt", ["a 1"])
    write(model / "dataset.json", [json.dumps({"files": {"dict.en.txt": {"sha256": "0"}}})])
    command = ("--train", *files, "--valid-every", "23")
    said = commands.refused(capsys, lambda words: make(tmp_path, *words, name="model"), *command)
    assert f"{model} exists already, and this posnet-prepare did not make it" in said


def test_a_folder_may_have_any_name(files, tmp_path):
    data = make(tmp_path, "--train", *files, "--valid-every", "23", name="caf\udce9", subwords=("--pieces", "60"))
    assert (data / "dataset.json").exists()


def test_tokenized_text_is_noted(files, tmp_path, capsys):
    spaced = write(tmp_path / "spaced.de", [line.replace(".", " .") for _, line in PAIRS])
    data = make(tmp_path, "--train", files[0], spaced, "--valid", *files, "-t", "de")
    (note,) = json.loads(text_of(data, "dataset.json"))["notes"][-1:]
    assert note.startswith("spaced.de looks tokenized: 60 lines end in a space and a period")
    assert f"note: {note}" in capsys.readouterr().err
    (tmp_path / "more").mkdir()
    more = write(tmp_path / "more/spaced.de", [line.replace(".", " .") for _, line in PAIRS])
    data = make(tmp_path, "--train", files[0], spaced, files[0], more, "--valid", *files, "-t", "de", name="both")
    notes = json.loads(text_of(data, "dataset.json"))["notes"][-2:]
    assert [note.split(" looks tokenized: 60 lines ")[0] for note in notes] == [
        f"{tmp_path.name}/spaced.de",
        "more/spaced.de",
    ]
    table = write(tmp_path / "both.tsv", ["\t".join(side.replace(".", " .") for side in pair) for pair in PAIRS])
    data = make(tmp_path, "--train", table, "--valid", *files, "-s", "en", "-t", "de", name="table")
    (note,) = json.loads(text_of(data, "dataset.json"))["notes"][-1:]
    assert note.startswith("both.tsv looks tokenized: 60 lines end in a space and a period")


def test_the_card_has_the_length_that_nearly_all_training_lines_have_at_most(tmp_path):
    """With the end symbol, as posnet-translate counts it: of 2,000 lines, two may be longer."""
    lines = ["ab ab"] * 1997 + ["ab " * size + "ab" for size in (2, 3, 4)]
    files = write_pairs(tmp_path, [(line, f"{line} ab") for line in lines])
    data = make(tmp_path, "--train", *files, "--valid", *write_pairs(tmp_path, [("ab", "ab")], "valid"))
    assert json.loads(text_of(data, "dataset.json"))["usual_length"] == {"en": 4, "de": 5}


EVERY = "--valid-every 23"
BOTH = f"my.en my.de {EVERY}"
MANY = " ".join(f"x.en x.{first}{second}z" for first in "abcdefg" for second in "hijklm")
MORE = f"my.en my.de tiny.en tiny.nl {EVERY}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        # files
        (f"my.en split.de {EVERY}", "split.de is split into subwords (60 of 60 lines"),
        # pairs and languages
        (f"my.en {EVERY}", "--train my.en: these files are not in pairs. Give SOURCE TARGET"),
        (f"my.en my.de my.de my.en {EVERY}", "my.de stands for the source, en, and ends in de"),
        (f"{BOTH} --test tiny.deu tiny.en_GB", "--test: tiny.deu stands for the source, en, and ends in deu"),
        (f"my.en my.en {EVERY}", "source and target are both en"),
        (f"source.sgm target.xml {EVERY}", "--source-lang: give a language, such as de, gsw, zh_CN or eng_Latn."),
        (
            f"source.txt target.txt {EVERY}",
            "--source-lang: give a language, such as de, gsw, zh_CN or eng_Latn. Without it, the files'",
        ),
        # what is left
        ("tiny.en tiny.de --valid-every 2", "no subwords can be learned: no two letters stand together twice"),
        (f"{BOTH} --max-length 2", "no sentences are left in the train set (58 dropped, length). Check the text"),
        (f"{BOTH} --symbols <a>,", "--symbols <a>,: the symbol '' is empty. Give symbols such as <nl>, each once"),
        (f"{BOTH} --symbols no/such.txt", "--symbols no/such.txt: there is no such file. Give the name of a file, or"),
        (f"{BOTH} --symbols <a>\u200b", "the symbol '<a>\\u200b' has white space or invisible characters"),
        (f"{BOTH} --symbols <a>,</s>", "the symbol '</s>' is reserved"),
        (f"{BOTH} --symbols {','.join(f'<symbol{n}>' for n in range(99))},<s>", "the symbol '<s>' is reserved"),
        (f"{BOTH} --symbols <0x41>", "the symbol '<0x41>' is reserved"),
        (f"{BOTH} --merges 50 --symbols <a>,&amp;", "--symbols: &amp; is what Moses writes for another character, whi"),
        (MORE, "--train: target files end in de and nl. Give --tag-target for a model of several target languages, or"),
        (f"{BOTH} --symbols a@@", "the symbol 'a@@' has a mark of subwords"),
        (f"{BOTH} --symbols <a>,<b>,<a>", "the symbol '<a>' is there twice"),
        (f"my.en my.de@0 {EVERY}", "--train my.de@0: give a whole number of times from 1 to 100 behind the @"),
        (f"my.en my.de@101 {EVERY}", "--train my.de@101: give a whole number of times from 1 to 100 behind the @"),
        (f"{BOTH} --test my.en my.de@2", "--test my.de@2: weights are for --train. Leave the @2 out"),
        (f"my.en@2 my.de {EVERY}", "--train my.en@2: give the weight of a pair of files behind the second one"),
        (f"my.en my.de@2 {EVERY} --join 3", "--join would join a pair with its own repetitions"),
        (f"{BOTH} --tag-target", "--tag-target: all training text is translated into de. Leave it out"),
        (f"my.tsv {EVERY} --tag-target", "--train my.tsv: --tag-target takes pairs of files that end in their lang"),
        (f"{MORE} --tag-target --test my.en tiny.fr", "--test my.en tiny.fr: the training text is from en to de or nl"),
        (f"{MANY} {EVERY} --tag-target", "--tag-target: from 1 to 42 languages, the names of files, which have all"),
        (f"{MORE} --tag-target -t de", "--target-lang: --tag-target takes the languages from the endings of files"),
        (f"{MORE} --tag-target --symbols <a>,<2nl>", "--symbols: <2nl> is a tag of --tag-target"),
        (f"{MORE} --tag-target --subwords bpe", "--subwords bpe splits each language by its own rules"),
        (
            f"{MORE} --tag-target --merges 50",
            "--merges has no meaning with --tag-target, whose languages sentencepiece",
        ),
        (f"{MORE} --tag-target --join 3", "--join has no meaning with --tag-target, where neighboring pairs may be"),
        (f"{MORE} --tag-target --like .", "--like . with --tag-target: give a dataset that was made with --tag-target"),
        (f"{BOTH} --join 1", "--join 1: give 2 or more"),
        (f"{BOTH} --merges 5 6 7", "--merges 5 6 7: give one number, or"),
    ],
)
def test_bad_input(files, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    lines = {
        "split.de": [line.replace("tz", "t@@ z") for _, line in PAIRS],
        "source.txt": ["a"],
        "target.txt": ["a"],
        "tiny.en": ["one", "ab"],
        "tiny.de": ["xyz", "q"],
        "tiny.deu": ["xyz", "q"],
        "tiny.nl": ["xyz", "q"],
        "tiny.fr": ["xyz", "q"],
        "tiny.en_GB": ["one", "ab"],
        "source.sgm": ["<seg>a</seg>"],
        "target.xml": ["<seg>a</seg>"],
    }
    for name, content in lines.items():
        write(tmp_path / name, content)
    subwords = () if "--tag-target" in arguments else ("--merges", "50")
    command = lambda words: make(tmp_path, "--train", *words, subwords=subwords)  # noqa: E731
    assert said in commands.refused(capsys, command, *arguments.split())
    assert not (tmp_path / "data/dataset.json").exists()


def test_pairs_are_repeated_by_weight(files, tmp_path):
    """Validation and test pairs are not repeated; weights change neither subwords nor notes on repeated pairs."""
    others = write_pairs(tmp_path, [*PAIRS[:3], *((f"Birds {n} and old houses.",) * 2 for n in range(9))], "others")
    rest, times = ("--valid-every", "4", "--test", *others), f"{others[1]}@3"
    plain = make(tmp_path, "--train", *files, *others, *rest, name="plain")
    data = make(tmp_path, "--train", *files, others[0], times, *rest)
    lines = text_of(plain, "train.en").splitlines()
    first = next(number for number, line in enumerate(lines) if "Birds" in line)
    first -= sum(line == PAIRS[n][0] for n in range(3) for line in lines[first - 3 : first])
    tripled = lines[:first] + [line for line in lines[first:] for _ in range(3)]
    assert text_of(data, "train.en").splitlines() == tripled
    assert DatasetCard.read(data).sentences["train"] == len(tripled) == len(read_tokens(data / "train.en-de.en")[1])
    before, after = contents(plain), contents(data)
    same = [name for name in before if name.startswith(("codes", "valid.bpe", "test.bpe"))]
    assert {name: before[name] for name in same} == {name: after[name] for name in same}
    notes = {folder: DatasetCard.read(folder).notes for folder in (plain, data)}
    copies = len(tripled) - len(lines)
    assert f"{copies} of the {len(tripled)} training pairs are repetitions by weights" in notes[data]
    repeated = [[note for note in notes[each] if "earlier one" in note] for each in notes]
    assert repeated[0] == repeated[1] != []
    assert json.loads(text_of(data, "dataset.json"))["files_read"]["train"][-1].endswith("others.de@3")


def test_several_target_languages(tmp_path):
    """A tag is one token in front of those of the source; text, limits and subwords are those without it."""
    german = [*PAIRS, ("OK", "OK"), ("I see: <2de>", "Aha"), ("a " * 9, "b " * 9)]
    french = [*((source, f"Le chat {n} dort.") for n, (source, _) in enumerate(PAIRS)), ("OK", "OK"), ("OK", "OK")]
    pairs = [*write_pairs(tmp_path, german), *write_pairs(tmp_path, french, "more", ("en", "fr"))]
    test = ["--test", *pairs[2:], *pairs]
    how = ("--drop-repeated", "--max-length", "40", "--max-ratio", "9")
    data = make(
        tmp_path, "--tag-target", "--train", *pairs, "--valid", *pairs, *test, *how, subwords=("--pieces", "90")
    )
    card = DatasetCard.read(data)
    assert (card.source_lang, card.target_lang, card.tags) == ("en", "de+fr", {"de": "<2de>", "fr": "<2fr>"})
    assert card.test_sets == {"test": "en-fr", "test1": "en-de"}
    assert card.dropped == {"repeated": 1}, "OK to both languages is no repetition"
    assert all(of.changed == 0 for sides in card.restored.values() for of in sides.values())
    pipeline = pipeline_of(data, ("en", "de+fr"))
    dictionary = Dictionary.load(data / "dict.en.txt")
    for name, language, rows in (("test", "fr", french * 2), ("test1", "de", german)):
        assert text_of(data, f"{name}.en").splitlines() == [source for source, _ in rows]
        assert text_of(data, f"{name}.de+fr").splitlines() == [target for _, target in rows]
        tokens = text_of(data, f"{name}.bpe.en").splitlines()
        assert tokens == [pipeline.towards(language).encode(source) for source, _ in rows]
        for line in tokens:
            assert line.split().count(f"<2{language}>") == 1, "text that is spelled like a tag is no tag"
            assert dictionary.ids_of(line)[0] == dictionary.index(f"<2{language}>") != dictionary.unk()
    assert "<2" not in text_of(data, "train.bpe.de+fr")
    like = make(
        tmp_path,
        "--tag-target",
        "--train",
        *pairs[2:],
        *test,
        "--valid-every",
        "9",
        "--like",
        data,
        name="like",
        subwords=(),
    )
    assert DatasetCard.read(like).tags == card.tags
    assert text_of(like, "test.bpe.en") == text_of(data, "test.bpe.en")


def test_pairs_in_training_in_the_other_direction_are_counted(tmp_path, capsys):
    """With tags. A direction of which no training pair is left is refused, and so is such data without tags."""
    files, short = write_pairs(tmp_path), write_pairs(tmp_path, [("a", "b " * 99)] * 9, "other", ("en", "nl"))
    how = ("--tag-target", "--max-ratio", "9", "--valid-every", "7")
    data = make(tmp_path, *how, "--train", *files, *reversed(files), subwords=("--pieces", "90"))
    pairs = [
        list(zip(*(text_of(data, f"{name}.{tag}").splitlines() for tag in ("en+de", "de+en")), strict=True))
        for name in ("valid", "train")
    ]
    shared = sum(pair[::-1] in pairs[1] for pair in pairs[0])
    note = f"{shared} of 17 pairs of the valid set are also in the training set, in this direction or the other one"
    assert note in DatasetCard.read(data).notes
    assert shared > 9
    command = lambda more: make(tmp_path, *more, name="more", subwords=())  # noqa: E731
    words = (*how, "--train", *files, *short, "--pieces", "90")
    assert "no training pairs into nl are left" in commands.refused(capsys, command, *words)
    words = ("--train", *files, "--like", data, "--valid-every", "7")
    assert "is from en+de to de+en. Give --tag-target, too" in commands.refused(capsys, command, *words)


def test_scripts_are_those_of_each_direction(tmp_path):
    """A Greek target among German ones is foreign, though another direction is into Greek."""
    greek = [(source, "Η γάτα κοιμάται κάτω από το σπίτι.") for source, _ in PAIRS]
    files = [*write_pairs(tmp_path, [*PAIRS, greek[0]]), *write_pairs(tmp_path, greek, "more", ("en", "el"))]
    options = ("--tag-target", "--drop-other-scripts", "--valid-every", "20", "--max-ratio", "9")
    data = make(tmp_path, *options, "--train", *files, subwords=("--pieces", "90"))
    assert DatasetCard.read(data).dropped == {"script": 1}


def test_scripts_of_a_small_direction_are_sampled(tmp_path):
    tags = write(tmp_path / "tags", [*["<2de>"] * 5001, *["<2el>"] * 2, *["<2de>"] * 5001])
    text = write(tmp_path / "text", [*["Die Katze"] * 5001, *["Η γάτα"] * 2, *["Die Katze"] * 5001])
    found = usual_scripts(text, 10004, tags)
    assert {tag: scripts.is_foreign("Η γάτα") for tag, scripts in found.items()} == {"<2de>": True, "<2el>": False}


@pytest.mark.parametrize("subwords", [("--merges", "50"), ("--pieces", "60")])
def test_joined_sentences(files, tmp_path, subwords):
    """Groups of neighbors are the same on both sides; subwords, dictionaries and test set those of single sentences."""
    arguments = ("--train", *files, "--valid-every", "6", "--test", *files)
    single = make(tmp_path, *arguments, name="single", subwords=subwords)
    data = make(tmp_path, *arguments, "--join", "7", name="joined", subwords=subwords)
    card = DatasetCard.read(data)
    assert card.dataset == "corpus.join7"
    assert card.test_sets == {"test": "as given", "test1": "as given, joined by 7"}
    shared = [name for name in contents(single) if name.startswith(("dict", "codes", "sentencepiece", "test."))]
    assert len(shared) == 11
    assert {name: contents(data)[name] for name in shared} == {name: contents(single)[name] for name in shared}
    pipeline, sizes = pipeline_of(single, ("en", "de")), {}
    for side, language, encode in ((0, "en", pipeline.encode), (1, "de", pipeline.encode_target)):
        for name in ("train", "valid", "test1"):
            lines = text_of(data, f"{name}.{language}").split("\n")[:-1]
            alone = text_of(single, f"{name.removesuffix('1')}.{language}").split("\n")[:-1]
            assert " ".join(lines) == " ".join(alone)
            assert [encode(line) for line in lines] == text_of(data, f"{name}.bpe.{language}").split("\n")[:-1]
            assert card.sentences[name] == len(lines)
            sizes[side, name] = [line.count(".") for line in lines]
    for name in ("train", "valid", "test1"):
        assert sizes[0, name] == sizes[1, name]
    assert sizes[0, "test1"] == [7] * 8 + [4]
    assert {1, 7} < set(sizes[0, "train"])


@pytest.mark.parametrize(
    "kind", [("--subwords", "bpe", "--merges", "30"), ("--subwords", "sentencepiece", "--pieces", "60")]
)
def test_like_another_dataset(files, tmp_path, kind):
    """The subwords and dictionaries are the other's, also for words that it did not have."""
    options = ("--lowercase", "--valid-every", "23")
    general = make(tmp_path, "--train", *files, *options, name="general", subwords=kind)
    special = write_pairs(tmp_path, [(f"Zebras {n} and old houses.",) * 2 for n in range(30)], "special")
    arguments = ("--like", general, "--train", *special, "--valid-every", "10")
    out = make(tmp_path, *arguments, name="special", subwords=())
    before, after = contents(general), contents(out)
    shared = [name for name in before if name.startswith(("dict.", "codes", "sentencepiece"))]
    assert len(shared) == 3
    assert {name: before[name] for name in shared} == {name: after[name] for name in shared}
    assert before["train.bpe.en"] != after["train.bpe.en"]
    line = "Old ZEBRAS sleep."
    ours, theirs = (pipeline_of(folder, ("en", "de")).encode(line) for folder in (out, general))
    assert ours == theirs


SYMBOLS = ("<2de>", "<nl>", "<nl>x", "[a|b]*", r"\d+", "&amp;", "ⅣⅣ", "A,b", "<none>")


@pytest.mark.parametrize("subwords", ["--merges 50", "--merges 50 40", "--pieces 60"])
def test_symbols_stay_whole(tmp_path, subwords):
    """Alone, next to words, in lower-case text, whatever their characters mean elsewhere, and without a sentence."""
    # Moses writes &amp; for another character, so that BPE takes no such symbol.
    names = SYMBOLS if "pieces" in subwords else tuple(name.replace("&amp;", "&copy;") for name in SYMBOLS)
    pairs = [
        (f"<2de> {source}<nl>{symbol}", f"{target} {symbol}<nl>") for source, target in PAIRS for symbol in names[1:8]
    ]
    files = write_pairs(tmp_path, pairs)
    symbols = write(tmp_path / "symbols", names)
    options = ("--symbols", symbols, "--lowercase", "--normalize", "nfkc", "--valid-every", "23", "--max-ratio", "3")
    data = make(tmp_path, "--train", *files, *options, subwords=subwords.split())
    card, pipeline = DatasetCard.read(data), pipeline_of(data, ("en", "de"))
    assert card.words["en"].symbols == card.words["de"].symbols == names
    assert card.symbols["en"]["<2de>"] == card.sentences["train"] > card.symbols["de"]["<2de>"] == 0
    assert "symbols that the training text lacks: <none>" in card.notes
    assert pipeline.symbols == names[1:8]
    for language, encode in (("en", pipeline.encode), ("de", pipeline.encode_target)):
        dictionary = Dictionary.load(data / f"dict.{language}.txt")
        assert set(names) < set(dictionary.symbols)
        for symbol in names:
            for form in ("{}", "a{}b", "a {} b", "Das {}{}. {}", "{} {}"):
                line = form.format(*[symbol] * 3)
                tokens = encode(line).split()
                assert tokens.count(symbol) == form.count("{}"), (line, tokens)
                decoded = pipeline.decode(" ".join(tokens))
                assert decoded.count(symbol) >= form.count("{}")
                if "pieces" in subwords:
                    assert decoded == pipeline.target.between_symbols(str.lower, line)
    assert lost_symbols("<nl> a <nl>", "<nl> a", pipeline.symbols) == ["<nl>"]
    if "pieces" in subwords:
        assert all(sides.changed == 0 for sides in card.restored["valid"].values())
    again = make(tmp_path, "--train", *files, "--like", data, "--valid-every", "23", name="again", subwords=())
    assert contents(again)["dict.de.txt"] == contents(data)["dict.de.txt"]
    assert pipeline_of(again, ("en", "de")).encode("a<nl>b") == pipeline.encode("a<nl>b")


def test_like_is_refused_where_it_cannot_be(files, tmp_path, capsys):
    data = make(tmp_path, "--train", *files, "--valid-every", "23")
    arguments = ["corpus", "--like", str(data), "--out", str(tmp_path / "x"), "--valid-every", "10", "--train"]
    for more, sentence in (
        ([*files, "--merges", "20"], "--merges has no meaning with --like"),
        ([*reversed(files)], "a whole dataset of posnet-prepare from de to en. This one is from en to de."),
    ):
        assert sentence in commands.refused(capsys, prepare.main, *arguments, *more)
    dictionary = data / "dict.de.txt"
    dictionary.write_text("".join(dictionary.read_text().splitlines(True)[1:]))
    said = commands.refused(capsys, prepare.main, *arguments, *files)
    assert f"{dictionary} is not the file that {data / 'dataset.json'} was made with. Copy it again" in said
    arguments[2] = tmp_path
    said = commands.refused(capsys, prepare.main, *arguments, *files)
    assert "This one has no card that says how text became tokens" in said
