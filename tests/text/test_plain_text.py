"""Text that is compressed or SGML is read as the plain text in it; other formats are named and refused."""

import bz2
import gzip
import io
import lzma
import zipfile

import pytest

from posnet_fairseq.inference.translation import BLANK, UNSCORED, Printing, Translation
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.plain import PlainText, iterate_text
from support.markup import sgml, xml

LINES = ["R&D says <b>2 < 3</b>", 'the "old" house', "", "Müller’s a b"]


def data(lines):
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def read(tmp_path):
    """The lines of the text in a file of given bytes."""

    def lines_of(content):
        path = tmp_path / "file"
        path.write_bytes(content)
        return list(iterate_text(path))

    return lines_of


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("text", content)
    return file.getvalue()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize(
    "form", [list, sgml, lambda lines: sgml(lines, "srcset", ""), xml, lambda lines: ["", *xml(lines, 'ref lang="de"')]]
)
def test_every_form_has_the_same_lines(read, form, compress):
    assert read(compress(data(form(LINES)))) == LINES


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
        (data(["<tmx>", "<tuv", ' xml:lang="en"><seg>a</seg>']), "file: <tuv does not end in its line: '<tuv'"),
        (data(["<!DOCTYPE html>", "<p>a</p>"]), "file is SGML or XML without <seg>"),
        (data([*sgml(LINES, system="A"), *sgml(LINES, system="B")]), r"several texts \(<doc sysid=A>, <doc sysid=B>\)"),
        (data(xml(LINES, 'src lang="en"')[:-1] + xml(LINES)), r"several texts \(<hyp system=\"A\">, <src lang=\"en\">"),
    ],
)
def test_other_formats_are_named(read, content, expected):
    with pytest.raises(UsageError, match=expected):
        read(content)


TRANSLATIONS = [
    Translation(text, -1.5, tokens, ("▁a", "▁b", "</s>"), None, alignment, (-0.25,) * len(tokens))
    for text, tokens, alignment in (
        ("a ||| b 1-1", ("▁a", "|||", "▁b", "</s>"), ((0, 0), (1, 2))),
        ('"c" ||| -0.500000', ("▁c", "</s>"), ()),
        ("7", ("▁7", "</s>"), ((0, 0),)),
    )
]
OUTPUTS = [[BLANK], [TRANSLATIONS[0]], [UNSCORED], [TRANSLATIONS[2], TRANSLATIONS[1]], [TRANSLATIONS[1]]]


@pytest.mark.parametrize("nbest", [None, 2])
@pytest.mark.parametrize("alignment", [None, "subwords", "words"])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("json", [False, True])
def test_annotated_translations_are_read_as_their_text(read, nbest, alignment, per_token, json):
    """Whatever posnet-translate prints beside the text; of several translations of a line the best."""
    printing = Printing(nbest, alignment, json, per_token)
    outputs = OUTPUTS if nbest else [several[:1] for several in OUTPUTS]
    printed = data(line for number, several in enumerate(outputs) for line in printing.lines(number, several))
    assert read(printed) == [several[0].text for several in outputs]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["0 ||| a ||| -0.500000", "b"], "file, line 2: posnet-translate prints no such line"),
        (["a b ||| 0-0 1-1", "0 ||| a ||| -0.500000"], "file, line 2: posnet-translate prints no such line"),
        (["0 ||| a ||| -0.500000", "a b ||| 0-0 1-1"], "file, line 2: posnet-translate prints no such line"),
        (["0 ||| a ||| -0.500000", "2 ||| b ||| -0.500000"], "file, line 2: it has number 2 where 1 should be"),
        (["1 ||| b ||| -0.500000"], "file, line 1: it has number 1 where 0 should be"),
        (["0 ||| a ||| -0.500000", "1 ||| b ||| -0.500000"] * 2, "file, line 3: it has number 0 where 2 should be"),
        (['{"line": 0, "text": "a", "score": -1}', '{"line": 1, "text": "a'], "file, line 2: it is no JSON"),
        (
            ['{"line": 0, "text": "a"}', '{"line": 1, "text": "b"}'],
            "file, line 1: posnet-translate prints no such line",
        ),
        (['{"line": 0, "text": "a\\nb"}'], "file, line 1: posnet-translate prints no such line"),
        (["-0.500000", "-1.500000"], "file has a number in each line"),
        (["-0.500000 ||| a </s> ||| -0.400000 -0.100000"] * 2, "file has a number in each line"),
        (["0 ||| a b ||| LM0= -9.5 ||| -2.25", "", "1 ||| c ||| LM0= -2 ||| -1"], "file is a list of n best"),
    ],
)
def test_what_is_no_text_is_refused(read, lines, expected):
    with pytest.raises(UsageError, match=expected):
        read(data(lines))


@pytest.mark.parametrize(("spaced", "tokenized"), [(3, False), (4, True)])
def test_what_looks_tokenized(spaced, tokenized):
    assert PlainText(["a b ."] * spaced + ["a b."] * (10 - spaced)).is_tokenized == tokenized


def test_an_entity_breaks_no_line(read):
    assert read(data(["<seg>a&#10;b&#x0D;</seg>", "<seg>c&#32;&#32;d</seg>"])) == ["a b", "c d"]


def test_empty_segments_and_those_without_entities(read):
    lines = ["<seg>a</seg><seg/>", "<seg /><seg id='a/b'>c</seg>", '<seg id="1"/>', "<seg></seg>", "<seg/>d</seg>"]
    assert read(data([*lines, "<seg> <![CDATA[<b> &amp; ]]>e</seg>"])) == ["a", "", "", "c", "", "", "", "<b> &amp; e"]


@pytest.mark.parametrize(
    "lines",
    [
        ["a\tb"],
        ["a\tb", "c d"],
        ["<b>a</b>", "<seg id=1>a</seg>"],
        ["BZh9 a"],
        [],
        [""],
        ["a ||| b", "c ||| d"],
        ["a ||| ", "c"],
        ["0.500000", "a"],
        ['{"line": 0}', "a"],
    ],
)
def test_plain_text_stays(read, lines):
    assert read(data(lines)) == lines
