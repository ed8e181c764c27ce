import gzip
import os

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines
from posnet_fairseq.shared.line_stream import IncomingLines


def every(lines, most):
    found = []
    while taken := lines.take(most):
        assert 1 <= len(taken) <= most
        found += taken
    assert lines.take(most) == []
    return found


@pytest.fixture
def pipe():
    """Lines of a pipe, and a function that writes bytes into it, or closes it with none."""
    reading, writing = os.pipe()

    def write(data):
        if data:
            os.write(writing, data)
        else:
            os.close(writing)

    yield IncomingLines(f"/dev/fd/{reading}"), write
    os.close(reading)


@pytest.mark.parametrize("most", [1, 2, 100])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"a",
        b"a\n\nb\n",
        b"a\nb\nc",
        b"\xef\xbb\xbfa\r\nb\r\n",
        "a\u2028b\x0bc\x85d\re\n".encode(),
        b"x\n" * 70000,
    ],
)
def test_a_file_has_the_lines_of_read_lines(tmp_path, content, most):
    (tmp_path / "file").write_bytes(content)
    assert every(IncomingLines(tmp_path / "file"), most) == read_lines(tmp_path / "file")


@pytest.mark.parametrize(
    ("bad", "sentence"), [(b"\xff", "is not UTF-8: line 3 has an invalid byte"), (b"b\0", "has a NUL byte in line 3")]
)
def test_lines_in_front_of_a_bad_one_are_returned(pipe, bad, sentence):
    lines, write = pipe
    write(b"a\nb\n" + bad + b"\nc\n")
    assert lines.take(9) == ["a", "b"]
    with pytest.raises(UsageError, match=sentence):
        lines.take(9)
    write(b"")


def test_a_line_without_end_is_refused_and_not_searched_again(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"link: line 1 has more than 1,048,576 bytes. Break it into sentences."):
        IncomingLines(tmp_path / "link").take(9)
    parts = iter([b"a\n", *[b"x" * 16] * 2**16, b"xx"])
    monkeypatch.setattr(os, "read", lambda file, most: next(parts))
    (tmp_path / "file").touch()
    lines = IncomingLines(tmp_path / "file")
    assert lines.take(9) == ["a"]
    with pytest.raises(UsageError, match="file: line 2 has more than 1,048,576 bytes"):
        lines.take(9)


def test_a_compressed_file(tmp_path):
    (tmp_path / "file").write_bytes(gzip.compress(b"a\n"))
    with pytest.raises(UsageError, match="file is compressed"):
        IncomingLines(tmp_path / "file").take(1)
