"""Text out of the formats that corpora come in."""

import bz2
import gzip
import lzma
from unittest.mock import Mock

import pytest

from posnet_data_prep.sources.published import extract
from posnet_data_prep.sources.readers import Reader, read_table
from posnet_fairseq.shared.errors import UsageError
from support import archives


def read(tmp_path, data, form="plain"):
    path = tmp_path / "file"
    path.write_bytes(data)
    reader = Reader()
    return list(getattr(reader, form)(path)), reader.repaired


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_only_a_newline_ends_a_line(tmp_path, compress):
    text = "\ufeffone\r\ntwo\u2028\u0085\x0b\x0c \r three\n\n last"
    lines, _ = read(tmp_path, compress(text.encode()))
    assert lines == ["one", "two\u2028\u0085\x0b\x0c \r three", "", " last"]


def test_invalid_bytes(tmp_path):
    assert read(tmp_path, b"good\nM\xfcll\na\0b\n") == (["good", "M\ufffdll", "a\0b"], 1)


def test_tags_of_iwslt(tmp_path):
    text = "<url>u</url>\n<keywords>k</keywords>\n<speaker>s\n<talkid>1</talkid>\n<title>T &amp; t</title>\n"
    text += "<description>D</description>\nA < b sentence\n\n"
    assert read(tmp_path, text.encode(), "tagged")[0] == ["<speaker>s", "T &amp; t", "D", "A < b sentence", ""]


def test_segments(tmp_path):
    text = '<?xml version="1.0"?>\n<doc docid="1">\n<title>no</title>\n<seg id="1"> a  "b" – c </seg>\r\n'
    text += '</doc>\n<doc docid="2">\n  <seg id="1">R&amp;D it’s</seg>\n<hl><seg id="2"></seg></hl>\n</doc>\n'
    assert read(tmp_path, text.encode(), "segments")[0] == ['a "b" – c', "R&amp;D it’s", ""]


def test_an_empty_line_of_a_table(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n\n")
    with pytest.raises(UsageError, match=r"line 2 has 1 column with tabs between, .* Remove the empty line\."):
        list(read_table(tmp_path / "a.tsv"))


def test_tables(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a b\tc\nd\r\t\n")
    assert list(read_table(path)) == [("a b", "c"), ("d", "")]
    path.write_bytes(b"a\tb\nc\td\te\n")
    with pytest.raises(UsageError, match=r"line 2 has 3 columns with tabs between, two are expected.*cut -f1,2"):
        list(read_table(path))
    path.write_bytes(b"a b\n")
    with pytest.raises(UsageError, match=r"line 1 has 1 column .* its translation\. Put a tab between them\."):
        list(read_table(path))


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        ("a b\tc\t0.93", "Cut the others off, for instance with cut -f1,2"),
        ("0.93\ta b\tc", "Cut the others off, for instance with cut -f2,3"),
        ("-1.5e-3\thttps://x.org/a\ta b\t7\tc d", "Cut the others off, for instance with cut -f3,5"),
        ("a\tb\tc", "Cut the others off, for instance with cut -f1,2, if they are the first two"),
        ('"a\tb"\tc', "It looks written as CSV, with a tab between quotation marks: write it without them"),
        ('a\tb\n"c ""d""', "It looks written as CSV, with the end of a line between quotation marks"),
        ('"c" d', "Put a tab between them"),
    ],
)
def test_advice_about_other_columns(tmp_path, rows, advice):
    (tmp_path / "a.tsv").write_text(f"{rows}\n")
    with pytest.raises(UsageError) as error:
        list(read_table(tmp_path / "a.tsv"))
    assert str(error.value).partition("its translation. ")[2].startswith(advice)


def run(tmp_path, data, *members):
    archive, folder = tmp_path / "a.tar", tmp_path / "out"
    archive.write_bytes(data)
    folder.mkdir(exist_ok=True)
    extract(archive, {member: member.replace("/", "_") for member in members}, folder, Mock())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("prefix", ["", "./", "2014-01/texts/"])
def test_members_are_found_in_every_compression_and_below_more_folders(tmp_path, compress, prefix):
    data = compress(archives.tar({f"{prefix}a/b.de": b"x", f"{prefix}a/b.en": b"y", f"{prefix}c/a_b.de": b"z"}, "w"))
    assert run(tmp_path, data, "a/b.de", "a/b.en") == {"a_b.de": b"x", "a_b.en": b"y"}


@pytest.mark.parametrize("name", ["../../etc/a", "/etc/a"])
def test_a_path_that_leads_out_of_the_folder_is_not_followed(tmp_path, name):
    assert run(tmp_path, archives.tar({name: b"x"}, "w"), "a") == {"a": b"x"}
