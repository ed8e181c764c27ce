"""Text that is compressed or SGML is read as the plain text in it; other formats are named and refused."""

import bz2
import gzip
import io
import lzma
import zipfile

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.plain import PlainText, iterate_text
from support.markup import sgml, xml

LINES = ["R&D says <b>2 < 3</b>", 'the "old" house', "", "Müller’s a b"]


def data(lines):
    return "".join(f"{line}\n" for line in lines).encode()


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("text", content)
    return file.getvalue()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize(
    "form", [list, sgml, lambda lines: sgml(lines, "srcset", ""), xml, lambda lines: ["", *xml(lines, 'ref lang="de"')]]
)
def test_every_form_has_the_same_lines(tmp_path, form, compress):
    path = tmp_path / "file"
    path.write_bytes(compress(data(form(LINES))))
    assert list(iterate_text(path)) == LINES


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (zipped(data(LINES)), "file is a zip archive, as files of Word and Excel are, not plain text"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "file is compressed by zstd, not plain text"),
        (b"{\\rtf1\\ansi Text}", "file is an RTF document, not plain text"),
        (gzip.compress(data(LINES * 99), mtime=0)[:-20], "file is compressed and damaged"),
        (data(["a\tb", "", "c d\te"]), "file is a table: each line has a tab"),
        (data(["0.93\ta b", "1\tc"]), "for instance column 2, which cut -f2 prints"),
        (data(["<seg id=1>a b", "c</seg>"]), "a segment does not end in its line: '<seg id=1>a b'"),
        (data(["<!DOCTYPE html>", "<p>a</p>"]), "file is SGML or XML without <seg>"),
        (data([*sgml(LINES, system="A"), *sgml(LINES, system="B")]), r"several texts \(<doc sysid=A>, <doc sysid=B>\)"),
        (data(xml(LINES, 'src lang="en"')[:-1] + xml(LINES)), r"several texts \(<hyp system=\"A\">, <src lang=\"en\">"),
    ],
)
def test_other_formats_are_named(tmp_path, content, expected):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=expected):
        list(iterate_text(path))


@pytest.mark.parametrize(("spaced", "tokenized"), [(3, False), (4, True)])
def test_what_looks_tokenized(spaced, tokenized):
    assert PlainText(["a b ."] * spaced + ["a b."] * (10 - spaced)).is_tokenized == tokenized


def test_an_entity_breaks_no_line(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data(["<seg>a&#10;b&#x0D;</seg>", "<seg>c&#32;&#32;d</seg>"]))
    assert list(iterate_text(path)) == ["a b", "c d"]


@pytest.mark.parametrize("lines", [["a\tb"], ["a\tb", "c d"], ["<b>a</b>", "<seg id=1>a</seg>"], ["BZh9 a"], [], [""]])
def test_plain_text_stays(tmp_path, lines):
    path = tmp_path / "file"
    path.write_bytes(data(lines))
    assert list(iterate_text(path)) == lines
