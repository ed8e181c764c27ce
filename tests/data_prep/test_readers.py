"""Text out of the formats that corpora come in."""

import bz2
import gzip
import lzma

import pytest

from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.errors import UsageError


def read(tmp_path, data, form="plain", strict=True):
    path = tmp_path / "file"
    path.write_bytes(data)
    reader = Reader(strict)
    return list(getattr(reader, form)(path)), reader.repaired


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_only_a_newline_ends_a_line(tmp_path, compress):
    text = "\ufeffone\r\ntwo\u2028\u0085\x0b\x0c \r three\n\n last"
    lines, _ = read(tmp_path, compress(text.encode()))
    assert lines == ["one", "two\u2028\u0085\x0b\x0c \r three", "", " last"]


def test_invalid_bytes(tmp_path):
    with pytest.raises(
        UsageError, match=r"file is not UTF-8: line 2 has an invalid byte at offset 6 of the file\. Convert it"
    ):
        read(tmp_path, b"good\nM\xfcll\n")
    assert read(tmp_path, b"good\nM\xfcll\n", strict=False) == (["good", "M\ufffdll"], 1)


def test_nul_bytes(tmp_path):
    with pytest.raises(UsageError, match=r"file has a NUL byte in line 1, so it is no text in UTF-8 \(UTF-16 has them"):
        read(tmp_path, "utf-16 text".encode("utf-16-le"))
    assert read(tmp_path, b"a\0b\n", strict=False) == (["a\0b"], 0)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_file_that_is_cut_short(tmp_path, compress):
    data = compress("\n".join(str(n) * n for n in range(500)).encode())
    with pytest.raises(UsageError, match=r"file is compressed and damaged .* Copy it again"):
        read(tmp_path, data[: len(data) // 2])


def test_tags_of_iwslt(tmp_path):
    text = "<url>u</url>\n<keywords>k</keywords>\n<speaker>s\n<talkid>1</talkid>\n<title>T &amp; t</title>\n"
    text += "<description>D</description>\nA < b sentence\n\n"
    assert read(tmp_path, text.encode(), "tagged")[0] == ["<speaker>s", "T &amp; t", "D", "A < b sentence", ""]


def test_segments(tmp_path):
    text = '<?xml version="1.0"?>\n<doc docid="1">\n<title>no</title>\n<seg id="1"> a  "b" – c </seg>\r\n'
    text += '</doc>\n<doc docid="2">\n  <seg id="1">R&amp;D it’s</seg>\n<hl><seg id="2"></seg></hl>\n</doc>\n'
    assert read(tmp_path, text.encode(), "segments")[0] == ['a "b" – c', "R&amp;D it’s", ""]
    with pytest.raises(UsageError, match=r"a segment does not end in its line: '<seg id=\"1\">a'"):
        read(tmp_path, b'<seg id="1">a\nb</seg>\n', "segments")


def test_tables(tmp_path):
    assert read(tmp_path, b"a b\tc\nd\t\n", "table")[0] == [("a b", "c"), ("d", "")]
    with pytest.raises(UsageError, match=r"line 2 has 3 columns with tabs between, two are expected.*cut -f1,2"):
        read(tmp_path, b"a\tb\nc\td\te\n", "table")
