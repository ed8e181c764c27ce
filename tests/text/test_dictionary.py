"""posnet's dictionary against fairseq's."""

import pytest
from fairseq.data import Dictionary as FairseqDictionary

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary

FILES = {
    "plain": "the 5\nthe@@ 3\n&quot; 2\nmadeupword0000 0\n",
    "no line end": "a 1\nb 2",
    "windows": "a 1\r\nb 2\r\n",
    "spaces in a symbol": "a b 1\n\u3000 7\n",
    "white space of Unicode": "a\u2028b 3\nc\u00a0 3\n \t 4\n",
    "symbols that look like counts": "1 1\n-1 1\n1_000 1_000\n",
    "negative count": "a -1\n",
    "overwritten": "a 1\nb 2\na 3 #fairseq:overwrite\n</s> 9 #fairseq:overwrite\n",
    "empty symbol": " 5\n",
    "comment in a symbol": "#fairseq:overwrite 1\n",
    "byte order mark": "\ufeffa 1\n",
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_reads_what_fairseq_reads(tmp_path, content):
    path = tmp_path / "dict.xx.txt"
    path.write_text(content, encoding="utf-8", newline="")
    theirs = FairseqDictionary.load(str(path))
    ours = Dictionary.load(path)
    assert (ours.symbols, ours.indices, len(ours)) == (theirs.symbols, theirs.indices, len(theirs))
    assert all(ours[index] == theirs[index] for index in range(len(theirs) + 2))
    for method in ("bos", "pad", "eos", "unk"):
        assert getattr(ours, method)() == getattr(theirs, method)()
    for line in ("a the b", " a\u2028c  the@@\tzzz ", "", "<unk>"):
        ids = ours.encode_line(line)
        assert ids.tolist() == theirs.encode_line(line, add_if_not_exist=False).tolist()
        assert ours.string(ids) == theirs.string(ids, extra_symbols_to_ignore={theirs.pad()})
    # fairseq takes them for its special symbols: for the end of a sentence, for instance.
    end = ours.index("</s>") if "</s> 9" in content else ours.unk()
    assert ours.encode_line("</s> <s> <pad> <unk>").tolist() == [end, *[ours.unk()] * 3, ours.eos()]
    ours.save(tmp_path / "ours")
    theirs.save(str(tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "it is empty"),  # fairseq takes it for a dictionary of no words
        (b"a 1\nb 2\na 3\n", "Duplicate word"),
        (b"<s> 4\n", "Duplicate word"),
        (b"a\n", "Incorrect dictionary format"),
        (b"a 1\n\nb 1\n", "Incorrect dictionary format"),
        (b"a b\n", "Incorrect dictionary format"),
        (b"a #fairseq:overwrite\n", "Incorrect dictionary format"),
        (b"5 #fairseq:overwrite\n", "Incorrect dictionary format"),
        (b"\xff\xfea 1\n", "Incorrect encoding"),
    ],
)
def test_refuses_what_fairseq_refuses(tmp_path, content, fault):
    path = tmp_path / "dict.xx.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"dict\.xx\.txt is no dictionary as fairseq-preprocess writes .*{fault}"):
        Dictionary.load(path)
    if content:
        with pytest.raises(Exception, match=fault):
            FairseqDictionary.load(str(path))


def test_equality():
    assert Dictionary(["a", "b"]) == Dictionary(["a", "b"])
    assert Dictionary(["a", "b"]) != Dictionary(["b", "a"])
    assert Dictionary() != list(Dictionary().symbols)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="none: there is no such file"):
        Dictionary.load(tmp_path / "none")
