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
    "empty": "",
    "byte order mark": "\ufeffa 1\n",
    "duplicated": "a 1\nb 2\na 3\n",
    "special": "<s> 4\n",
    "no count": "a\n",
    "empty line": "a 1\n\nb 1\n",
    "count is text": "a b\n",
    "only the flag": "a #fairseq:overwrite\n",
    "not UTF-8": b"\xff\xfea 1\n",
}
FAULTS = {
    "empty": "it is empty",
    "duplicated": "Duplicate word",
    "special": "Duplicate word",
    "no count": "Incorrect dictionary format",
    "empty line": "Incorrect dictionary format",
    "count is text": "Incorrect dictionary format",
    "only the flag": "Incorrect dictionary format",
    "not UTF-8": "Incorrect encoding",
}


@pytest.mark.parametrize("name", FILES)
def test_reads_what_fairseq_reads(tmp_path, name):
    path, data = tmp_path / "dict.xx.txt", FILES[name]
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    fault = FAULTS.get(name)
    if fault:
        with pytest.raises(UsageError, match=rf"dict\.xx\.txt is no dictionary as fairseq-preprocess writes .*{fault}"):
            Dictionary.load(path)
        if name != "empty":  # fairseq takes it for a dictionary of no words
            with pytest.raises(Exception, match=fault):
                FairseqDictionary.load(str(path))
        return
    theirs = FairseqDictionary.load(str(path))
    ours = Dictionary.load(path)
    assert (ours.symbols, ours.indices, len(ours)) == (theirs.symbols, theirs.indices, len(theirs))
    assert all(ours[index] == theirs[index] for index in range(len(theirs) + 2))
    for method in ("bos", "pad", "eos", "unk"):
        assert getattr(ours, method)() == getattr(theirs, method)()
    for line in ("a the b", " a\u2028c  the@@\tzzz ", "", "</s> <s> <pad> <unk>"):
        ids = ours.encode_line(line)
        assert ids.tolist() == theirs.encode_line(line, add_if_not_exist=False).tolist()
        assert ours.string(ids) == theirs.string(ids, extra_symbols_to_ignore={theirs.pad()})
    ours.save(tmp_path / "ours")
    theirs.save(str(tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_equality():
    assert Dictionary(["a", "b"]) == Dictionary(["a", "b"])
    assert Dictionary(["a", "b"]) != Dictionary(["b", "a"])
    assert Dictionary() != list(Dictionary().symbols)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="none: there is no such file"):
        Dictionary.load(tmp_path / "none")
