import json
import zipfile

import pytest

from posnet_data_prep import download, prepare
from posnet_data_prep.catalogs import Text, read_wheel
from posnet_data_prep.clean import sentence_pairs
from posnet_data_prep.download import Wheel, fetch, sha256
from posnet_data_prep.split import split_by_document
from posnet_fairseq.errors import UsageError
from posnet_fairseq.text_pipeline import pipeline_of


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "package.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/a/translations/en.json", json.dumps({"x": {"y": "Open the door.", "z": "Alone"}}))
        archive.writestr("p/a/translations/de.json", json.dumps({"x": {"y": "Öffne die Tür.", "w": "Allein"}}))
        catalog = (
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Close"\nmsgstr "Schließen"\n\n'
        )
        catalog += '#, fuzzy\nmsgid "Guess"\nmsgstr "Geraten"\n\nmsgid "Untranslated"\nmsgstr ""\n'
        archive.writestr("p/locale/de/LC_MESSAGES/p.po", catalog)
        archive.writestr("p/locale/fr/LC_MESSAGES/p.po", catalog)
    return path


def test_reads_texts_that_have_a_translation(wheel):
    texts = list(read_wheel(wheel, "de"))
    assert Text("p/a/translations/", "Open the door.", "Öffne die Tür.") in texts
    assert sorted(text.source for text in texts) == ["Close", "Open the door."]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            "Open the door. Then leave.",
            "Öffne die Tür. Geh dann.",
            [("Open the door.", "Öffne die Tür."), ("Then leave.", "Geh dann.")],
        ),
        ("Open it. Leave.", "Öffne es und geh.", [("Open it. Leave.", "Öffne es und geh.")]),
        (
            "One line\nTwo lines",
            "Eine Zeile\n\nZwei Zeilen",
            [("One line", "Eine Zeile"), ("Two lines", "Zwei Zeilen")],
        ),
        (
            "The <b>bold</b> &amp; [nice](http://x.y) **door**",
            "Die <b>fette</b> &amp; [nette](http://x.y) **Tür**",
            [("The bold & nice door", "Die fette & nette Tür")],
        ),
        (
            "Device {name} not found",
            "Gerät {name} nicht gefunden",
            [("Device {name} not found", "Gerät {name} nicht gefunden")],
        ),
        ("See https://example.org", "Siehe https://example.org", []),
        ("{{ template }} text here", "{{ template }} Text hier", []),
        ("Same text", "same text", []),
        ("OK", "Ok!", []),
        ("12 34 56 abc", "12 34 56 abd", []),
        ("Bluetooth Adapter Name Setting", "Bluetooth Adapter Name Einstellung", []),
        ("One", "Ein sehr langer Satz mit vielen Wörtern", []),
    ],
)
def test_cleaning(source, target, expected):
    assert list(sentence_pairs(source, target)) == expected


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


def serve(monkeypatch, content):
    def pip(wheel, folder):
        with open(f"{folder}/served.whl", "wb") as file:
            file.write(content)

    monkeypatch.setattr(download, "_pip_download", pip)


def test_download_checks_content_and_keeps_the_wrong_file(monkeypatch, tmp_path):
    serve(monkeypatch, b"right")
    (tmp_path / "right").write_bytes(b"right")
    good = Wheel("package", "1", sha256(tmp_path / "right"))
    assert fetch(good, tmp_path / "cache").read_bytes() == b"right"
    serve(monkeypatch, b"never asked again")
    assert fetch(good, tmp_path / "cache").read_bytes() == b"right"
    with pytest.raises(UsageError, match=r"other==1 has SHA-256 .* kept as .*other-1\.whl\.wrong"):
        fetch(Wheel("other", "1", "0" * 64), tmp_path / "cache")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["other-1.whl.wrong", "package-1.whl"]


def test_failed_download_says_so(tmp_path):
    with pytest.raises(UsageError, match="could not download no-such-package-posnet==1"):
        fetch(Wheel("no-such-package-posnet", "1", ""), tmp_path)


def test_existing_data_is_left_alone(capsys, tmp_path):
    with pytest.raises(SystemExit) as error:
        prepare.main(["quickstart.en-de", "--out", str(tmp_path)])
    assert error.value.code == 2
    assert "exists already" in capsys.readouterr().err


def test_prepare_makes_a_dataset_that_decodes_to_its_text(monkeypatch, tmp_path):
    texts = [
        Text(
            f"document {i}",
            f"Open door number {spelled(i)}, please.",
            f"Öffne bitte Tür {spelled(i)} „gleich“, '%(x)s'.",
        )
        for i in range(400)
    ]
    monkeypatch.setattr(prepare, "fetch", lambda wheel, folder: wheel)
    monkeypatch.setattr(prepare, "read_wheel", lambda wheel, language: texts)
    monkeypatch.setattr(prepare, "PIECES", 60)
    prepare.main(["quickstart.en-de", "--out", str(tmp_path / "data"), "--workers", "1"])
    data = tmp_path / "data"
    card = json.loads((data / "dataset.json").read_text())
    assert card["sentences"]["train"] + card["sentences"]["valid"] + card["sentences"]["test"] == 400
    pipeline = pipeline_of(data)
    for name in ("train", "valid", "test"):
        plain = (data / f"{name}.de").read_text().split("\n")[:-1]
        pieces = (data / f"{name}.bpe.de").read_text().split("\n")[:-1]
        assert len(plain) == card["sentences"][name]
        assert [pipeline.encode(line) for line in plain] == pieces
        assert [pipeline.decode(line) for line in pieces] == plain
    assert (data / "train.en-de.en.bin").exists()
    assert not (tmp_path / "data.partial").exists()
