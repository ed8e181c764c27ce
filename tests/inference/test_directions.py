"""Text is tokenized as in training, whichever direction of its data a model translates."""

import pytest
from fairseq.data.data_utils import load_indexed_dataset

import posnet_fairseq as posnet
from posnet_data_prep.prepare import main as prepare
from posnet_fairseq.cli import average, export, plot, precompute, translate
from posnet_fairseq.inference import translating
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.vocabularies import infer_languages
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.plots import of_model
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary
from posnet_fairseq.text.pipeline import choose_pipeline, pipeline_of
from support import archives, commands
from support.building import model_options
from support.checkpoints import saved

# What the languages are told apart by: abbreviations, apostrophes, hyphens, quotes, capitals.
MARKED = {
    "en": ["It's Dr. Smith's well-known, up-to-date U.S. list - isn't it?", "Don't “quote” ME, e.g. at 5 p.m. No. 7."],
    "de": ["Geht's Hrn. Müller z.B. am 3. Mai gut? Größe-Maß: „ÄÖÜ“!", "Nr. 7 ist's: die S-Bahn-Linie, bzw. Straße 5."],
    "zh": ["我们使用Python 3.5。", "“引” 他说：老房子的门（一）！"],
    "fr": ["L'eau, c'est aujourd'hui qu'il l'a dit : n° 5, M. Dupont !", "Va-t-il au chef-d'œuvre de l'été, Mme. X ?"],
}
# Of the test set: with spaces around it, a no-break space and a soft hyphen.
ODD = {
    "en": "  Open the\u00a0 old fi\u00adle. ",
    "de": "Öffne die alte Datei.",
    "zh": "打开文件。",
    "fr": "Ouvre le fichier.",
}
RECIPES = {
    "joint codes": ("en", "de", "--merges", "90"),
    "codes for each": ("en", "de", "--merges", "90", "60"),
    "lower case": ("en", "de", "--merges", "90", "--lowercase"),
    "sentencepiece": ("en", "de", "--subwords", "sentencepiece", "--pieces", "120"),
    "jieba": ("zh", "en", "--tokenizer", "jieba", "--merges", "60", "90", "--max-ratio", "9"),
    "characters": ("en", "zh", "--tokenizer", "characters", "--merges", "90", "--max-ratio", "9"),
    "apostrophes": ("fr", "en", "--merges", "90"),
}


@pytest.fixture(scope="module", params=RECIPES)
def data(request, tmp_path_factory):
    """A folder written by posnet-prepare, and its languages."""
    source, target, *recipe = RECIPES[request.param]
    folder = tmp_path_factory.mktemp("text")
    pairs = archives.sentences(source, target, 120, 1) + list(zip(MARKED[source], MARKED[target], strict=True)) * 3
    odd = [(ODD[source], ODD[target])]
    arguments = ["corpus", *recipe, "--workers", "1", "--out", str(folder / "data")]
    for name, rows in (("train", pairs), ("valid", pairs[-5:]), ("test", pairs[20:50] + pairs[-2:] + odd)):
        paths = [folder / f"{name}.{language}" for language in (source, target)]
        for path, column in zip(paths, zip(*rows, strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in column))
        arguments += [f"--{name}", *map(str, paths)]
    prepare(arguments)
    return folder / "data", (source, target)


def model(path, data, languages):
    """A checkpoint of a model for one direction."""
    dictionaries = [Dictionary.load(str(data / f"dict.{language}.txt")) for language in languages]
    cfg = model_options("rposnet", share_all_embeddings=False, max_source_positions=99, max_target_positions=99)
    task = {"_name": "translation", "data": str(data), "source_lang": languages[0], "target_lang": languages[1]}
    built = MixerTransformer.build_model(cfg, Vocabulary(*languages, *dictionaries))
    return saved(path, cfg, "rposnet_tiny", task, built)


def lines(path):
    return path.read_text().split("\n")[:-1]


def translator(*arguments):
    """The translator that posnet-translate makes with these arguments."""
    options = translate._parser().parse_args(list(map(str, arguments)))
    return translating._load(options, "cpu", "float32").translator(SearchSettings())


def assert_splits_as_the_data(translator, data, pair, source, target):
    binary = load_indexed_dataset(
        str(data / f"test.{'-'.join(pair)}.{source}"), translator.vocabulary.source_dictionary
    )
    pieces = lines(data / f"test.bpe.{source}")
    for number, (line, tokens) in enumerate(zip(lines(data / f"test.{source}"), pieces, strict=True)):
        if line.strip() != line and not translator.pipeline.source.normal_form:
            continue  # data may have tokens of these spaces, and translation puts them around the translation
        assert translator.pipeline.encode(line) == tokens
        assert translator.encode(line).tolist() == binary[number].tolist()
    words = translator.pipeline.target
    assert words.language == target
    for line, tokens in zip(lines(data / f"test.{target}"), lines(data / f"test.bpe.{target}"), strict=True):
        assert translator.pipeline.decode(tokens) == words.join(words.split(line))


@pytest.mark.quick_cases(1)
def test_lines_are_split_as_for_training_in_both_directions(data, tmp_path):
    folder, pair = data
    for source, target in (pair, pair[::-1]):
        run = tmp_path / source
        run.mkdir()
        trained = model(run / "checkpoint1.pt", folder, (source, target))
        average.main([str(run), "--num", "1", "--out", str(run / "mean.pt")])
        precompute.main([str(trained), "--out", str(run / "fast.pt")])
        export.main([str(trained), "--out", str(run / "folder")])
        for given in ([trained], [trained, trained], [run / "mean.pt"], [run / "fast.pt"], [run / "folder"]):
            assert_splits_as_the_data(translator(*given), folder, pair, source, target)


@pytest.mark.parametrize("data", ["joint codes", "apostrophes"], indirect=True)
def test_codes_that_are_given_go_with_the_words_of_the_models_languages(tmp_path, data):
    folder, pair = data
    for source, target in (pair, pair[::-1]):
        path = model(tmp_path / "model.pt", folder, (source, target))
        assert_splits_as_the_data(translator(path, "--bpe-codes", folder / "codes.bpe"), folder, pair, source, target)


@pytest.mark.parametrize("data", ["joint codes", "sentencepiece"], indirect=True)
@pytest.mark.parametrize("languages", [("de", "fr"), ("fr", "en"), ("", "")])
def test_a_card_of_other_languages_is_refused(data, languages):
    with pytest.raises(UsageError, match="says how en and de are split into tokens, and the model"):
        pipeline_of(data[0], languages)


def test_languages_of_a_folder_of_dictionaries(tmp_path):
    """They are in the card where no names of binarized data tell them; other names with a hyphen do not."""
    assert infer_languages(tmp_path / "gone") == infer_languages(tmp_path) == (None, None)
    (tmp_path / "eval.beam-5.txt").touch()
    assert infer_languages(tmp_path) == (None, None)
    (tmp_path / "dataset.json").write_text('{"source_lang": "en", "target_lang": "de"}')
    assert infer_languages(tmp_path) == ("en", "de")
    (tmp_path / "test.fr-en.fr.idx").touch()
    assert infer_languages(tmp_path) == ("fr", "en")


def test_a_language_of_several_is_chosen(tmp_path, capsys, monkeypatch):
    """By posnet-translate and in Python, of a checkpoint and a model folder; where it is missing, or there is none."""
    files = []
    for target in ("de", "fr"):
        for side, lines_of_side in zip(
            ("en", target), zip(*archives.sentences("en", "de", 60, 1), strict=True), strict=True
        ):
            files.append(tmp_path / f"{target}.{side}")
            files[-1].write_text("".join(f"{line}\n" for line in lines_of_side))
    made = {}
    for name, arguments in (("one", ["--train", *files[:2]]), ("several", ["--tag-target", "--train", *files])):
        made[name] = tmp_path / name
        prepare(
            ["corpus", *map(str, arguments), "--valid-every", "9", "--pieces", "90", "--max-ratio", "9"]
            + ["--workers", "1", "--out", str(made[name])]
        )
    one = model(tmp_path / "one.pt", made["one"], ("en", "de"))
    path = model(tmp_path / "several.pt", made["several"], ("en", "de+fr"))
    export.main([str(path), "--out", str(tmp_path / "folder")])
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text("The cat sleeps\n\n")

    def translated(checkpoint, *more):
        translate.main(
            [*map(str, (checkpoint, "--input", text, "--output", out)), "--max-len-b", "9", "--per-token", *more]
        )
        return lines(out)

    found = {language: translated(path, "--to", language) for language in ("de", "fr")}
    assert found["de"] != found["fr"]
    for place in (path, tmp_path / "folder"):
        loaded = posnet.load(place)
        for language, expected in found.items():
            best = loaded.translate("The cat sleeps", nbest=1, max_len_b=9, to=language)[0]
            assert best.source_tokens[0] == best.tag == f"<2{language}>"
            assert best.source_words == ("The", "cat", "sleeps")
            assert expected == translated(place, "--to", language)
            assert expected[0].startswith(f"{best.text} ||| ")
            assert loaded.score("The cat sleeps", best.text, to=language).source_tokens == best.source_tokens
            assert loaded.weights("The cat sleeps", best.text, to=language)["cross.1"].keys[0] == f"<2{language}>"
        for language, said in (
            (None, "^the model translates into de or fr"),
            ("nl", "^to='nl': the model translates into"),
            (["de"], r"^to \['de'\]: give a language, such as 'de'"),
        ):
            for use in (loaded.translate, loaded.weights):
                with pytest.raises(UsageError, match=said):
                    use("The cat sleeps", to=language)
    assert (
        "posnet.load('folder').translate(\"A line of text.\", to='de')" in (tmp_path / "folder/README.md").read_text()
    )
    with pytest.raises(UsageError, match=r"^to='de': there is no language to choose: the model translates into one"):
        posnet.load(one).translate("The cat sleeps", to="de")
    with pytest.raises(UsageError, match="the model translates into de or fr: only posnet-translate and posnet-plot"):
        pipeline_of(made["several"], ("en", "de+fr")).encode("The cat sleeps")
    drawn = []
    monkeypatch.setattr(of_model, "draw", lambda what, mixings, out, title, report: drawn.append((mixings, title)))
    plot.main(["weights", "--sentence", "The cat sleeps", str(path), "--to", "fr", "--out", str(tmp_path / "figures")])
    assert "<2fr>" in repr(drawn)
    assert "| translates into | de, fr |" in (tmp_path / "folder/README.md").read_text()
    export.main([str(path), "--pretokenized", "--out", str(tmp_path / "tokens")])
    assert "to=" not in (tmp_path / "tokens/README.md").read_text()
    capsys.readouterr()
    words = ("weights", str(path), "--to", "fr")
    assert "--to fr chooses the language of a translation" in commands.refused(capsys, plot.main, *words)
    pieces = {"sentencepiece_model": made["several"] / "sentencepiece.model"}
    assert choose_pipeline(made["several"], ("en", "de+fr"), **pieces).tags
    with pytest.raises(UsageError, match=r"the model from en to de\+fr has tags of languages"):
        choose_pipeline(tmp_path, ("en", "de+fr"), **pieces)
    with pytest.raises(UsageError, match="has tags for translations from en, not from de"):
        pipeline_of(made["several"], ("de+fr", "en"))
    capsys.readouterr()
    for more, said in (
        ((), "the model translates into de or fr. Choose one by --to"),
        (
            ("--pretokenized", "--split-sentences"),
            "--split-sentences with --pretokenized: only the first sentence of a",
        ),
        (("--to", "fr", "--pretokenized"), "--to fr: there is no language to choose: the text is split into tokens"),
    ):
        words = (path, "--input", text, *more)
        assert said in commands.refused(capsys, translate.main, *map(str, words))


def test_lost_symbols_are_noted(tmp_path, capsys):
    """Those that both languages had in training; an untrained model writes none."""
    sides = zip(*archives.sentences("en", "de", 60, 1), strict=True)
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    for path, lines_of_side, form in zip(files, sides, ("<2de> {}<nl>\n", "{}<nl>\n"), strict=True):
        path.write_text("".join(map(form.format, lines_of_side)))
    data, text = tmp_path / "data", tmp_path / "text"
    prepare(
        ["corpus", "--train", *map(str, files), "--valid-every", "9", "--pieces", "90", "--max-ratio", "9"]
        + ["--symbols", "<2de>,<nl>,<x>", "--workers", "1", "--out", str(data)]
    )
    text.write_text("<2de> The cat<nl> sleeps\n\nA cat\n<x>\n")
    path = model(tmp_path / "model.pt", data, ("en", "de"))
    translate.main([str(path), "--input", str(text), "--output", str(tmp_path / "out"), "--max-len-b", "5"])
    notes = [line for line in capsys.readouterr().err.splitlines() if "more often than the translation" in line]
    assert notes == ["posnet-translate: 1 sentence has <nl> more often than the translation: the model lost it"]
