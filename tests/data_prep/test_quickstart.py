import json
import zipfile

import pytest

from posnet_data_prep import prepare
from posnet_data_prep.sources import interface_texts
from posnet_data_prep.sources.archives import WHEELS
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.interface_texts import Cleaner, read_wheel, split_by_document
from posnet_fairseq.text.pipeline import pipeline_of


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "package.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/a/translations/en.json", json.dumps({"x": {"y": "Open the door.", "z": "Alone"}}))
        archive.writestr("p/a/translations/de.json", json.dumps({"x": {"y": "Öffne die Tür.", "w": "Allein"}}))
        archive.writestr("p/a/translations/zh-Hans.json", json.dumps({"x": {"y": "打开门。"}}))
        archive.writestr("p/a/translations/zh-Hant.json", json.dumps({"x": {"y": "打開門。"}}))
        catalog = (
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Close"\nmsgstr "Schließen"\n\n'
        )
        catalog += '#, fuzzy\nmsgid "Guess"\nmsgstr "Geraten"\n\nmsgid "Untranslated"\nmsgstr ""\n'
        archive.writestr("p/locale/de/LC_MESSAGES/p.po", catalog)
        archive.writestr("p/locale/fr/LC_MESSAGES/p.po", catalog)
    return path


def test_chinese_has_other_names(wheel):
    assert [target for _, _, target in read_wheel(wheel, "zh")] == ["打开门。"]


def test_reads_texts_that_have_a_translation(wheel):
    texts = list(read_wheel(wheel, "de"))
    assert ("p/a/translations/", "Open the door.", "Öffne die Tür.") in texts
    assert sorted(source for _, source, _ in texts) == ["Close", "Open the door."]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Open it. Then leave.", "Öffne es. Geh dann.", [("Open it.", "Öffne es."), ("Then leave.", "Geh dann.")]),
        ("Open it. Leave.", "Öffne es und geh.", [("Open it. Leave.", "Öffne es und geh.")]),
        ("One line\nTwo", "Eine Zeile\n\nZwei", [("One line", "Eine Zeile"), ("Two", "Zwei")]),
        ("<b>Bold</b> &amp; [x](http://x.y) **door**", "<b>Fett</b> &amp; [x](http://x.y) **Tür**",
         [("Bold & x door", "Fett & x Tür")]),
        ("Device {name} not found", "Gerät {name} fehlt hier",
         [("Device {name} not found", "Gerät {name} fehlt hier")]),
        ("See https://example.org", "Siehe https://example.org", []),
        ("{{ template }} text here", "{{ template }} Text hier", []),
        ("Same text", "same text", []),
        ("OK", "Ok!", []),
        ("12 34 56 abc", "12 34 56 abd", []),
        ("Bluetooth Adapter Name Setting", "Bluetooth Adapter Name Einstellung", []),
        ("One", "Ein sehr langer Satz mit vielen Wörtern", []),
        ("Open it. Then leave.", "打开它。然后离开。", [("Open it.", "打开它。"), ("Then leave.", "然后离开。")]),
        ("Open", "打开", [("Open", "打开")]),
        ("Open the door", "门", []),
        ("Enable Assistant Cloud", "启用 Assistant Cloud 服务",
         [("Enable Assistant Cloud", "启用 Assistant Cloud 服务")]),
    ],
)  # fmt: skip
def test_cleaning(source, target, expected):
    language, other = ("zh", "de") if any("一" <= letter <= "鿿" for letter in target) else ("de", "zh")
    assert list(Cleaner(language).sentence_pairs(source, target)) == expected
    assert list(Cleaner(other).sentence_pairs(source, target)) == []


def spelled(number):
    """A number in letters: sources that differ in digits only count as one."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def test_split_shares_no_document_and_no_source():
    pairs = [(f"document {i % 200}", f"Source number {spelled(i)}", f"target {i}") for i in range(4000)]
    sets = split_by_document(pairs)
    documents = {source: document for document, source, _ in pairs}
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        ours, theirs = ({documents[source] for source, _ in sets[name]} for name in (one, other))
        assert ours
        assert not ours & theirs
    assert sets == split_by_document(reversed(pairs)), "the order of reading must not matter"


def test_test_sources_seen_in_training_are_dropped():
    # documents by the hash of their names: find one of each set
    names = {
        name: next(d for d in map(str, range(1000)) if split_by_document([(d, "s", "t")])[name])
        for name in ("train", "test")
    }
    pairs = [(names["train"], "Wait 5 seconds for {x}", "a"), (names["test"], "wait 10 seconds for %(y)s", "b")]
    assert split_by_document(pairs)["test"] == []


def test_the_most_frequent_translation_wins():
    pairs = [("d", "Name", "Bezeichnung"), ("d", "Name", "Benennung"), ("d", "Name", "Benennung")]
    (sentences,) = (found for found in split_by_document(pairs).values() if found)
    assert sentences == [("Name", "Benennung")]


def test_prepare_makes_a_dataset_that_decodes_to_its_text(monkeypatch, tmp_path):
    texts = [
        (f"document {i}", f"Open door {spelled(i)}, please.", f"Öffne bitte Tür {spelled(i)} „gleich“, '%(x)s'.")
        for i in range(400)
    ]
    monkeypatch.setattr(interface_texts, "read_wheel", lambda wheel, language: texts if wheel == WHEELS[0] else [])
    monkeypatch.setattr(Downloads, "fetch", lambda self, wheel: wheel)
    data = tmp_path / "data"
    arguments = ["--downloads", str(tmp_path), "--workers", "1", "--pieces", "60"]
    prepare.main(["quickstart.en-de", "--out", str(data), *arguments])
    card = json.loads((data / "dataset.json").read_text())
    assert card["sentences"]["train"] + card["sentences"]["valid"] + card["sentences"]["test"] == 400
    assert card["archives"][WHEELS[0].name]["licence"] == "Apache-2.0"
    pipeline = pipeline_of(data, ("de", "en"))
    for name in ("train", "valid", "test"):
        plain = (data / f"{name}.de").read_text().split("\n")[:-1]
        pieces = (data / f"{name}.bpe.de").read_text().split("\n")[:-1]
        assert len(plain) == card["sentences"][name]
        assert [pipeline.encode(line) for line in plain] == pieces
        assert [pipeline.decode(line) for line in pieces] == plain
    assert (data / "train.en-de.en.bin").exists()
