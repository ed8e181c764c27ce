"""The descriptions of Debian's packages: posnet-prepare debian.en-de."""

import bz2
import gzip
import hashlib
import json
import lzma
import os
import random

import pytest

from posnet_data_prep import prepare
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.sources import debian as reading
from posnet_data_prep.sources import transfer
from posnet_data_prep.sources.archives import package_descriptions
from posnet_data_prep.sources.debian import paragraphs, read_descriptions
from posnet_data_prep.sources.document_sets import (
    LEAST,
    MOST_HELD_OUT,
    Document,
    NearDuplicates,
    drop_near_duplicates,
    split_families,
    write_documents,
)
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.errors import UsageError

GERMAN = package_descriptions("de")
NAME = "dists_bookworm_main_i18n_Translation-{}"


def record(package, language, short, *lines, english=None):
    """A record of an index; `english` is the text whose hash it has."""
    key = hashlib.md5((english or short).encode()).hexdigest()
    return "\n".join(
        [f"Package: {package}", f"Description-md5: {key}", f"Description-{language}: {short}", *lines, "\n"]
    )


def invented(language, packages=60):
    """An index of packages with three paragraphs each, in words that differ from package to package."""
    records = []
    for number in range(packages):
        words = random.Random(f"{language} {number}")
        texts = [" ".join(_word(words) for _ in range(6)) for _ in range(3)]
        records.append(
            record(f"package{number:03}", language, texts[0], f" {texts[1]}", " .", f" {texts[2]}", english=str(number))
        )
    return "".join(records)


def _word(words):
    return "".join(words.choice("abcdefghiklmnoprstuw") for _ in range(6))


def write_indexes(folder, **texts):
    """Write indexes, one for each language; without any, those of English and German."""
    folder.mkdir(exist_ok=True)
    for language, text in (texts or {"en": invented("en"), "de": invented("de")}).items():
        (folder / NAME.format(language)).write_text(text, encoding="utf-8")
    return folder


def serving(indexes):
    """The script of an apt-get that serves the indexes of a folder."""
    name = NAME.format("$LANGUAGE")
    return (
        'case $1 in\nindextargets) echo "http://localhost/debian-security/ http://localhost/debian/";;\n'
        f'update) cp "{indexes}/{name}" "$LISTS/localhost_debian_{name}";;\nesac'
    )


def test_paragraphs():
    lines = [" One", " line.", " .", " Two:", "  * a", "  * b  c", "   d", " .", " ."]
    assert list(paragraphs("Short", lines)) == ["Short", "One line.", "Two:", "* a", "* b c", "d"]
    assert list(paragraphs("Short", [])) == ["Short"]


def test_texts_have_the_hash_of_their_english(tmp_path):
    text = record("b", "de", "Kurz", " Lang", english="x") + record("c", "de", "Zwei", english="x")
    path = tmp_path / "index"
    path.write_text(text + "\n\n" + record("d", "de", "Drei", "Homepage: x", " y"), encoding="utf-8")
    first, last = read_descriptions(path, "de").values()
    assert (first.package, first.paragraphs) == ("b", ("Kurz", "Lang"))
    assert last.paragraphs[0] == "Drei"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (record("a", "de", "Kurz") + "Package: b\nVersion: 1\n\n", "line 5 .*Give an index Translation-de"),
        (record("a", "fr", "Court"), "line 1 .*package in de"),
        ("no index\n", "line 1 .*Description-md5"),
        (b"Package: \xff\n", "is not UTF-8"),
        (
            record("a", "de", "Kurz") + record("b", "de", "Lang")[:-1],
            "begins in line 5 has no empty line .* cut short. Copy it again",
        ),
    ],
)
def test_an_index_of_another_form(tmp_path, content, said):
    path = tmp_path / "index"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=said):
        read_descriptions(path, "de")


def lz4(content):
    """An lz4 frame with one block that is not compressed."""
    header = b"\x04\x22\x4d\x18\x60\x40\x82"
    return header + (len(content) | 1 << 31).to_bytes(4, "little") + content + bytes(4)


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("", bytes), (".xz", lzma.compress), (".bz2", bz2.compress), (".gz", gzip.compress), (".lz4", lz4)],
)
def test_a_folder_of_indexes_as_apt_keeps_them(tmp_path, report, ending, compress):
    if ending == ".lz4" and not transfer.HELPER.exists():
        pytest.skip("no apt")
    text = record("a", "de", "Kurz").encode()
    mirror = tmp_path / "lists"
    mirror.mkdir()
    (mirror / f"localhost_debian_{NAME.format('de')}{ending}").write_bytes(compress(text))
    (mirror / f"{NAME.format('de_AT')}").write_text("of another language")
    found = Downloads(tmp_path / "downloads", str(mirror), report).fetch(GERMAN)
    read = read_descriptions(transfer.decompress_lz4(found, tmp_path / "plain"), "de")
    assert [description.package for description in read.values()] == ["a"]


def test_lz4_without_apt_and_damaged(tmp_path, monkeypatch):
    path = tmp_path / "index"
    path.write_bytes(lz4(b"text")[:-6])
    with pytest.raises(UsageError, match="is compressed by lz4, and damaged"):
        transfer.decompress_lz4(path, tmp_path / "plain")
    path.write_bytes(lz4(b"text"))
    monkeypatch.setattr(transfer, "HELPER", tmp_path / "none")
    with pytest.raises(UsageError, match="no apt to read it"):
        transfer.decompress_lz4(path, tmp_path / "plain")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a shell script in the place of apt-get; return its folder. Its variables LISTS and LANGUAGE are options."""

    def install(script):
        program = tmp_path / "bin/apt-get"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            f'echo "$@" >> {program.parent}/calls\n'
            'for word in "$@"; do case $word in\n'
            "--option=Dir::State::lists=*) LISTS=${word##*=};; --option=Acquire::Languages=*) LANGUAGE=${word##*=};;\n"
            "esac; done\n"
            f"{script}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return program.parent

    return install


def test_apt_downloads_into_folders_of_its_own(tmp_path, report, install):
    programs = install(serving(write_indexes(tmp_path / "served")))
    downloads = tmp_path / "downloads"
    path = Downloads(downloads, None, report).fetch(GERMAN)
    assert path.read_text() == invented("de")
    assert path == downloads / GERMAN.name
    assert Downloads(downloads, None, report).fetch(GERMAN) == path
    update = (programs / "calls").read_text().splitlines()[1:]
    assert len(update) == 1, "a file that is here is not downloaded again"
    for option in ("Dir::State", "Dir::State::lists", "Dir::Cache", "Dir::Etc::sourcelist"):
        assert f"--option={option}={downloads}/" in update[0]
    assert "--option=Dir::Etc::sourceparts=-" in update[0]
    assert not list(downloads.glob("*.apt"))


def test_an_interrupted_download_goes_on(tmp_path, report, install):
    served = write_indexes(tmp_path / "served")
    fails_once = (
        'if [ $1 = update ] && [ ! -e "$LISTS/partial/begun" ]; then touch "$LISTS/partial/begun"; exit 100; fi'
    )
    install(f"{fails_once}\n{serving(served)}")
    downloads = Downloads(tmp_path / "downloads", None, report)
    with pytest.raises(UsageError, match="Run the command again to continue"):
        downloads.fetch(GERMAN)
    assert downloads.fetch(GERMAN).read_text() == invented("de")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("[ $1 = update ] || echo http://localhost/debian/", "bookworm has no descriptions in the language de"),
        ("echo http://localhost/ubuntu/", "its sources have no mirror of Debian"),
        ("echo 'E: Could not resolve host.' >&2; exit 100", "apt: Could not resolve host. Run|apt: Could not resolve"),
    ],
)
def test_a_download_that_cannot_be(tmp_path, report, install, script, said):
    install(script)
    with pytest.raises(UsageError, match=f"({said}).*--mirror"):
        Downloads(tmp_path, None, report).fetch(GERMAN)


def documents_of(*pairs):
    return [Document(f"d{number}", tuple(of)) for number, of in enumerate(pairs)]


def test_documents_that_share_text_are_in_one_set():
    rng = random.Random(1)
    shared = [
        ((f"s{a}", f"t{a}"), (f"s{b}", f"t{b}"))
        for a, b in ((rng.randrange(900), rng.randrange(900)) for _ in range(300))
    ]
    documents = documents_of(*shared)
    sets = split_families(documents, {"valid": 20, "test": 50})
    assert sum(map(len, sets.values())) == len(documents)
    texts = {name: {text for of in of_set for pair in of.pairs for text in pair} for name, of_set in sets.items()}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["valid"]
    assert not texts["valid"] & texts["test"]
    for name, size in (("valid", 20), ("test", 50)):
        assert size <= len({pair for of in sets[name] for pair in of.pairs}) < size + MOST_HELD_OUT
    again = split_families(documents[::-1], {"valid": 20, "test": 50})
    assert {name: set(of) for name, of in again.items()} == {name: set(of) for name, of in sets.items()}


def dice(some, others):
    ours, theirs = set(some.split()), set(others.split())
    return 2 * len(ours & theirs) / (len(ours) + len(theirs))


def test_near_duplicates_are_found_as_by_comparing_all():
    rng = random.Random(1)
    lines = [" ".join(rng.choice("abcdefgh") for _ in range(rng.randint(1, 9))) for _ in range(400)]
    known, others = lines[:60], lines[60:]
    found = [line in NearDuplicates(known) for line in others]
    assert found == [max(dice(line, other) for other in known) >= LEAST for line in others]
    assert 0 < sum(found) < len(found)


def test_near_duplicates_of_test_sentences_are_dropped():
    train = documents_of([("one two three four five", "eins"), ("else", "sonst")], [("nothing", "fast das hier nun")])
    test = [Document("t", (("one two three four six", "zwei"), ("other", "fast das hier nun")))]
    sets, dropped = drop_near_duplicates({"train": train, "test": test})
    assert sets == {"train": [Document("d0", (("else", "sonst"),))], "test": test}
    assert dropped == {"train": 2, "test": 0}


def test_documents_keep_their_order(tmp_path):
    documents = documents_of([("a", "x"), ("b", "y"), ("c", "z")], [("c", "z"), ("d", "w"), ("a", "x")])
    assert write_documents(tmp_path, "test", ("en", "de"), documents) == {"lines": 4, "documents": 2}
    assert (tmp_path / "test.en").read_text() == "a\nb\nc\nd\n"
    assert (tmp_path / "test.documents").read_text() == "d0\t1 2 3\nd1\t3 4 1\n"


def test_the_dataset(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reading, "HELD_OUT", {"valid": 9, "test": 18})
    lists, data = write_indexes(tmp_path / "lists"), tmp_path / "data"
    command = ["debian.en-de", "--out", str(data), "--mirror", str(lists), "--workers", "1"]
    command += ["--downloads", str(tmp_path / "downloads"), "--pieces", "60"]
    prepare.main(command)
    card = json.loads((data / "dataset.json").read_text())
    assert card["sentences"] == {"train": 153, "valid": 9, "test": 18}
    (english, german) = card["archives"].values()
    assert english["digest"] != german["digest"]
    assert all(of["digest"].startswith("sha256:") and "packages" in of["licence"] for of in (english, german))
    for name, count in card["sentences"].items():
        lines = {language: (data / f"{name}.{language}").read_text().splitlines() for language in ("en", "de")}
        rows = [row.split("\t") for row in (data / f"{name}.documents").read_text().splitlines()]
        assert len(lines["en"]) == len(lines["de"]) == count
        assert sorted(int(number) for _, numbers in rows for number in numbers.split()) == list(range(1, count + 1))
        for package, numbers in rows:
            for language in ("en", "de"):
                ours = [lines[language][int(number) - 1] for number in numbers.split()]
                assert f"{package}\n" in invented(language)
                assert f": {ours[0]}\n {ours[1]}\n .\n {ours[2]}\n" in invented(language)
    capsys.readouterr()
    prepare.main(command)
    assert "is up to date" in capsys.readouterr().err


def test_translations_that_are_none_are_left_out(tmp_path, report):
    english = record("a", "en", "Graphical editor", " The same text", " .", " More", english="x")
    german = record("a", "de", "Grafischer Editor", " The same text", " .", " Mehr", english="x")
    english += record("b", "en", "One", " Two", english="y")
    german += record("b", "de", "Eins", " Zwei", " .", " Drei", english="y")
    downloads = Downloads(tmp_path, str(write_indexes(tmp_path / "lists", en=english, de=german)), report)
    documents, counts = reading.read_documents(("en", "de"), downloads, tmp_path, report)
    assert documents == [Document("a", (("Graphical editor", "Grafischer Editor"), ("More", "Mehr")))]
    del counts["digests"]
    assert counts == {"documents": 2, "other paragraphs": 1, "pairs": 3, "unusable": 1}


@pytest.mark.parametrize(
    ("pairs", "indexes"),
    [
        (180, {}),
        (0, {"en": record("a", "en", "x"), "de": record("a", "de", "x", english="y")}),
        (0, {"en": "", "de": ""}),
    ],
)
def test_indexes_without_text_for_training(tmp_path, report, pairs, indexes):
    downloads = Downloads(tmp_path, str(write_indexes(tmp_path / "lists", **indexes)), report)
    said = rf"^{pairs} pairs are too few .*, which have 3,000, and a training set\. --mirror needs"
    with pytest.raises(UsageError, match=said):
        DATASETS["debian.en-de"].read(tmp_path, downloads).make(tmp_path, report)


def test_two_test_sets(monkeypatch, tmp_path):
    """Descriptions of packages and interface texts: sets of both, and a test set of each."""
    interface = {
        "train": [("Open the door", "Öffne die Tür"), ("Save all files", "Alle Dateien speichern")],
        "valid": [("Close the window", "Schließe das Fenster")],
        "test": [("Open the doors now please", "Nun öffne Türen"), ("Save the files", "Alle Dateien speichern")],
    }
    monkeypatch.setattr(reading, "HELD_OUT", {"valid": 9, "test": 18})
    monkeypatch.setattr(reading, "read_interface_texts", lambda language, downloads, report: interface)
    data = tmp_path / "data"
    command = ["study.en-de", "--mirror", str(write_indexes(tmp_path / "lists")), "--workers", "1", "--pieces", "90"]
    command += ["--downloads", str(tmp_path / "downloads"), "--out"]
    prepare.main([*command, str(data)])
    card = json.loads((data / "dataset.json").read_text())
    assert card["sentences"] == {"train": 153 + 1, "valid": 9 + 1, "test": 18, "test1": 2}
    assert card["test_sets"].keys() == {"test", "test1"}
    assert (data / "test1.en").read_text().splitlines() == [source for source, _ in interface["test"]]
    assert "Save all files" not in (data / "train.en").read_text(), "its target is in the second test set"
    assert "Open the door\n" in (data / "train.en").read_text()
    assert (data / "test1.en-de.de.bin").stat().st_size > 0
    numbers = " ".join(row.split("\t")[1] for row in (data / "train.documents").read_text().splitlines())
    assert len(numbers.split()) == 153, "interface texts belong to no document"
    interface["train"] += [("Close the gate", "Закройте дверь"), ("OPEN THE DOOR", "ÖFFNE DIE TÜR")]
    for number, options in enumerate((["--drop-other-scripts"], ["--drop-repeated", "--lowercase"])):
        prepare.main([*command, str(tmp_path / str(number)), *options])
        assert [path.name for path in sorted((tmp_path / str(number)).glob("*.documents"))] == [
            "test.documents",
            "valid.documents",
        ], "numbers of lines of another training set"
