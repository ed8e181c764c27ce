"""What posnet-prepare corpus makes of any language comes back as it was: a perfect system has BLEU 100."""

import json
import random

import pytest
import sacrebleu

from posnet_data_prep import prepare
from posnet_data_prep.pipeline.subwords import learn_pieces
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.text.pipeline import choose_pipeline, pipeline_of
from posnet_fairseq.text.subwords import SentencePieces
from posnet_fairseq.text.tokenizers import Tokenizer
from support.scoring import run, write

# "The cat sleeps in the old house." and "Open the file, please!", by tags as names of files have them.
SENTENCES = {
    "en": ("The cat sleeps in the old house.", "Open the file, please!"),
    # Latin
    "de": ("Die Katze schläft im alten Haus.", "Öffnen Sie „die Datei“, bitte – geht’s?"),
    "fr": ("L’œil du chat s’ouvre : « il dort » dans la vieille maison.", "Qu’est-ce que c’est ? Ouvrez l'été !"),
    "cat": ("El gat dorm a la casa vella; l’home d’aquí col·labora.", "Obriu el fitxer, si us plau: «n'hi ha»!"),
    "pt-BR": ("O gato dorme na casa velha.", "Abra o arquivo, por favor — não é “difícil”!"),
    "tr": ("Kedi eski evde uyuyor. İstanbul’da ılık.", "Lütfen dosyayı açın!"),
    "gsw": ("D Chatz schlaaft im alte Huus.", "Mach s File uuf, bitte!"),
    # Cyrillic and Greek
    "ru": ("Кошка спит в старом доме.", "Откройте «файл», пожалуйста!"),
    "srp_Cyrl": ("Мачка спава у старој кући.", "Отворите „датотеку“, молим!"),
    "el": ("Η γάτα κοιμάται στο παλιό σπίτι· ναι;", "Ανοίξτε το «αρχείο», παρακαλώ!"),
    # Arabic and Hebrew
    "ar": ("القطة تنام في البيت القديم، نعم؟", "افتح «الملف» من فضلك؛ شكرًا!"),
    "fa": ("گربه در خانهٔ قدیمی می\u200cخوابد؛ «بله»؟", "لطفاً پرونده را باز کنید!"),
    "he": ("החתול ישן בבית הישן, צה״ל וג׳ירפה.", "פתח את הקובץ, בבקשה!"),
    # scripts of India
    "hi": ("बिल्ली पुराने घर में सोती है।", "कृपया फ़ाइल खोलें!"),
    "ml": ("പൂച്ച പഴയ വീട്ടിൽ ഉറങ്ങുന്നു.", "ദയവായി ഫയൽ തുറക്കുക!"),
    "tam": ("பூனை பழைய வீட்டில் தூங்குகிறது.", "கோப்பைத் திறக்கவும்!"),
    # without spaces between words, and Korean
    "zh_CN": ("猫睡在老房子里。", "请打开“文件”，谢谢！"),
    "jpn": ("猫は古い家で\u3000眠っています。", "「ファイル」を開いてください！"),
    "ko": ("고양이가 오래된 집에서 잔다.", "파일을 열어 주세요!"),
    "th": ("แมวนอนในบ้านเก่า", "กรุณาเปิดไฟล์ ๆ ครับ!"),
    "khm": ("ឆ្មាដេកក្នុងផ្ទះចាស់។", "សូមបើកឯកសារ!"),
    "lao_Laoo": ("ແມວນອນໃນເຮືອນເກົ່າ", "ກະລຸນາເປີດໄຟລ໌!"),
    "my": ("ကြောင်သည် အိမ်ဟောင်းတွင် အိပ်သည်။", "ဖိုင်ကို ဖွင့်ပါ။"),
}
_AROUND = (
    "{}",
    "{} {n}",
    '<b class="x">{}</b>&nbsp;&amp;',
    "“{}” 'x' \"y\" – {n} %",
    "{} https://posnet.org/a_b?q={n}&c#d",
)
# In no line that subwords are learned from.
_ONLY_TEST = (
    "`x[{n}] += f(\"a\", 'b'); // {}`",
    "{} 😀👩‍🚀🇩🇪☃ ĳꙮ𓀀",
    "  {}  \u00a0 @-@ ",
    "<s> <unk> <pad> </s> {} <0x41>",
    "a\tb\u2028\ufeff\u200b{}",
    "{} __x__ {{y}} C:\\new\\t$1",
)


def lines(language, test=False):
    """Lines of a language, parallel to those of others."""
    around = _AROUND + _ONLY_TEST if test else _AROUND * 4
    found = [form.format(s, n=n) for n, form in enumerate(around * 2) for s in SENTENCES[language]]
    return [*found, f"▁▁ {found[0]}▁ @@"] if test else found  # more such lines would be taken for subwords


def make(folder, language, *options, out="data"):
    for name in ("train", "test"):
        for side in ("en", language):
            write(folder / f"{name}.{side}", lines(side, name == "test"))
    given = [word for name in ("train", "test") for word in (f"--{name}", *(f"{name}.{x}" for x in ("en", language)))]
    prepare.main(["corpus", *given, "--valid-every", "5", "--workers", "1", "--out", out, *options])
    return folder / out


@pytest.mark.parametrize("language", [*SENTENCES][1:])  # all but English
def test_every_language_comes_back(tmp_path, capsys, monkeypatch, language):
    """Text, tokens, ids, tokens, text: and posnet-score finds nothing missing."""
    monkeypatch.chdir(tmp_path)
    data, tag = make(tmp_path, language), language.replace("-", "_")
    said = "every line of valid and test comes back from its tokens as it was (after --normalize spaces)."
    assert said in capsys.readouterr().err
    pipeline, dictionary = pipeline_of(data, ("en", tag)), Dictionary.load(data / f"dict.{tag}.txt")
    tokens = (data / f"test.bpe.{tag}").read_text().split("\n")[:-1]
    ids = [[*map(dictionary.index, line.split())] for line in tokens]
    assert not any(dictionary.unk() in line for line in ids)
    decoded = [pipeline.decode(dictionary.string(line)) for line in ids]
    assert decoded == lines(language, test=True)
    assert [pipeline.encode_target(line) for line in decoded] == tokens
    given = choose_pipeline(data, ("en", tag), sentencepiece_model=data / "sentencepiece.model")
    assert [given.encode_target(line) for line in decoded] == tokens
    write(tmp_path / "decoded", decoded)
    options = ["--metrics", "bleu,chrf", "--json", "--resamples", "40", "-l", f"en-{language}"]
    said = run(capsys, "--system", "decoded", "--reference", f"data/test.{tag}", *options).out
    (test,) = json.loads(said)["test_sets"]
    assert {metric: of["value"] for metric, of in test["scores"]["decoded"].items()} == pytest.approx(
        {"bleu": 100, "chrf": 100}
    )


VARIANTS = (" {}", "{} ", "\ufeff{}\u200b", "{}\u00a0\t", "\u2009{}\u00ad")


@pytest.mark.parametrize("subwords", [("--pieces", "200"), ("--merges", "90")])
def test_sources_are_normalized_and_targets_are_not(tmp_path, monkeypatch, subwords):
    """In data and in translation alike; the plain text stays as it was."""
    monkeypatch.chdir(tmp_path)
    forms = {
        name: make(tmp_path, "de", *subwords, "--normalize", name, out=name) for name in ("none", "spaces", "nfkc")
    }
    default = make(tmp_path, "de", *subwords, out="default")
    assert {path.name: path.read_bytes() for path in default.glob("*.bin")} == {
        path.name: path.read_bytes() for path in forms["spaces"].glob("*.bin")
    }
    for name, data in forms.items():
        words = json.loads((data / "dataset.json").read_text())["words"]
        assert words["en"].get("normal_form", "none") == name
        assert "normal_form" not in words["de"]
        pipeline, targets = pipeline_of(data, ("en", "de")), pipeline_of(data, ("de", "en"))
        for language, encode in (("en", targets.encode_target), ("de", pipeline.encode_target)):
            text, tokens = ((data / f"test.{kind}{language}").read_text().split("\n")[:-1] for kind in ("", "bpe."))
            assert text == lines(language, test=True)
            assert [encode(line) for line in text] == tokens
        plain, *odd = (
            "Open the file",
            "Open  the\u00a0\u202ffi\u00adle",
            "\u200bOpen the\u3000fi\u200ble",
            "Ｏpen the ﬁle",
        )
        found = [pipeline.encode(line) == pipeline.encode(plain) for line in odd]
        assert found == {"none": [False] * 3, "spaces": [True, True, False], "nfkc": [True] * 3}[name]
        around = [pipeline.encode(form.format(plain)) == pipeline.encode(plain) for form in VARIANTS]
        assert all(around), "also where nothing is normalized: they come back around the translation"


def test_like_another_dataset_and_datasets_of_earlier_versions(tmp_path, capsys, monkeypatch):
    """They have no normal form, and are not made again by the same command."""
    monkeypatch.chdir(tmp_path)
    before = make(tmp_path, "de", "--normalize", "none")
    card = (before / "dataset.json").read_bytes()
    capsys.readouterr()
    make(tmp_path, "de")
    assert "data is up to date, without --normalize spaces, which is the default now." in capsys.readouterr().err
    assert (before / "dataset.json").read_bytes() == card
    special = make(tmp_path, "de", "--like", "data", out="special")
    assert "normal_form" not in json.loads((special / "dataset.json").read_text())["words"]["en"]
    make(tmp_path, "de", "--normalize", "spaces")
    assert DatasetCard.read(before).words["en"].normal_form == "spaces"
    special = make(tmp_path, "de", "--like", "data", out="special")
    assert DatasetCard.read(special).words["en"].normal_form == "spaces"
    with pytest.raises(SystemExit):
        make(tmp_path, "de", "--like", "data", "--normalize", "nfkc", out="special")
    assert "--normalize has no meaning with --like data. Leave it out." in capsys.readouterr().err


def test_any_line_comes_back(tmp_path, monkeypatch):
    """Of random characters of all planes, names of pieces and white space; sentencepiece itself takes ▁ for a space."""
    monkeypatch.chdir(tmp_path)
    parts = "▁|<0x41>|<pad>|<s>|</s>|<unk>|\r|\x00|\x85|▅|@@|pad|<|>|x".split("|") + [" ", "  "]
    write(tmp_path / "text", ["".join(parts), "<pad>" * 9] * 20)
    write(tmp_path / "sets", ["train"] * 40)
    learn_pieces(tmp_path / "sets", [tmp_path / "text"], 90, tmp_path / "model", 40, lossless=True)
    pieces, rng = SentencePieces(tmp_path / "model"), random.Random(1)
    assert set("<pad>") < set(pieces.pieces)
    for _ in range(300):
        drawn = [chr(rng.choice((rng.randrange(11, 0xD800), rng.randrange(0xE000, 0x110000)))) for _ in range(5)]
        line = "".join(rng.choices(parts + drawn, k=rng.randint(0, 12)))
        tokens = pieces.split(line)
        assert tokens.split() == tokens.split(" ") or not line
        assert set(tokens.split()) <= set(pieces.pieces) - {"<s>", "</s>", "<unk>", "<pad>"}
        assert pieces.join(tokens) == line.replace("\0", " "), tokens
    assert pieces.join("▁a <0xE2> <0x96> b <0x0A> ▁c") == "a\ufffdb  c"


@pytest.mark.parametrize("options", [(), ("--lowercase",)])
def test_losses_are_said(tmp_path, capsys, monkeypatch, options):
    """Of Moses, which puts spaces elsewhere; BLEU is sacreBLEU's of the text that comes back."""
    monkeypatch.chdir(tmp_path)
    data = make(tmp_path, "gsw", "--merges", "90", *options)
    card, expected = DatasetCard.read(data), lines("gsw", test=True)
    expected = [line.lower() for line in expected] if options else expected
    pipeline, dictionary = pipeline_of(data, ("en", "gsw")), Dictionary.load(data / "dict.gsw.txt")
    decoded = [
        pipeline.decode(dictionary.string(dictionary.encode_line(pipeline.encode_target(line)))) for line in expected
    ]
    found = card.restored["test"]["gsw"]
    assert found.changed == sum(one != other for one, other in zip(decoded, expected, strict=True)) > 0
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(decoded, [expected]).score, abs=0.01)
    assert found.bleu < 99
    said = capsys.readouterr().err
    assert (
        f"{found.changed} of 45 lines of test.gsw are not restored from their tokens; a perfect system would score "
        f"BLEU {found.bleu:.1f}."
    ) in said
    assert "note: Moses has no rules for gsw and splits text as English, at spaces and punctuation." in said


def test_the_rules_of_moses_are_those_of_the_language(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = make(tmp_path, "pt-BR", "--merges", "90")
    assert DatasetCard.read(data).words["pt_BR"].rules == "pt"
    assert "rules" not in json.loads((data / "dataset.json").read_text())["words"]["en"], "earlier versions refuse it"
    assert Tokenizer("deu", rules="de").split("Am 3. Mai.") == Tokenizer("de").split("Am 3. Mai.") == "Am 3. Mai ."
    assert Tokenizer("deu").split("Am 3. Mai.") == "Am 3 . Mai .", "cards of earlier versions have no rules"


@pytest.mark.parametrize(
    ("options", "dropped", "left"),
    [
        ("", {}, ["same text", "in Latin", "cafe here", "1"]),
        ("--drop-copies", {"copy": 2}, ["in Latin", "cafe here"]),
        ("--drop-other-scripts", {"script": 2}, ["cafe here", "1"]),
        ("--drop-copies --drop-other-scripts", {"copy": 2, "script": 1}, ["cafe here"]),
    ],
)
def test_copies_and_other_scripts(tmp_path, capsys, monkeypatch, options, dropped, left):
    """They are counted, and dropped if that is asked for. A word of another language among others is no mistake."""
    monkeypatch.chdir(tmp_path)
    odd = {"same text": "same text", "in Latin": "not Russian", "cafe here": "кафе Internet Explorer", "1": "1"}
    write(tmp_path / "train.en", [*odd, *lines("en")])
    write(tmp_path / "train.ru", [*odd.values(), *lines("ru")])
    files = ["--train", "train.en", "train.ru", "--valid", "train.en", "train.ru", "--workers", "1", "--out", "data"]
    prepare.main(["corpus", *files, "--max-ratio", "99", *options.split()])
    card, kept = DatasetCard.read("data"), (tmp_path / "data/train.en").read_text().split("\n")
    assert (card.dropped or {}) == dropped
    assert [line for line in odd if line in kept] == left
    said = capsys.readouterr().err
    assert ("pairs that have equal sides: 2 train, 2 valid." in said) == (not dropped)
    assert "2 valid.\n" in said.partition("without a letter of its language's script: ")[2]
