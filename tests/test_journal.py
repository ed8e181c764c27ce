import fcntl
import json

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.journal import Journal

HEADER = {"input": "abc", "beam": 4}
RECORDS = [["a\nb", "\u2028"], [{"score": -0.1}], "c" * 100]


@pytest.fixture
def path(tmp_path):
    """A journal of an attempt that ended."""
    path = tmp_path / "out.partial"
    journal = Journal(path, HEADER)
    for record in RECORDS:
        journal.append(record)
    journal._file.close()
    return path


def after(path, header=HEADER, **options):
    """The records that the next attempt finds."""
    journal = Journal(path, header, **options)
    journal._file.close()
    return journal.records


def test_records_of_the_same_work_are_found(path, tmp_path):
    assert after(path) == after(path, resume=True) == RECORDS
    assert after(tmp_path / "none") == after(tmp_path / "none", resume=True) == []
    assert (tmp_path / "none").read_bytes() == b""


def test_cut_anywhere_it_goes_on_from_the_last_whole_record(path, tmp_path):
    """Killed in the middle of writing any byte."""
    data = path.read_bytes()
    cut = tmp_path / "cut"
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data) + 1):
        cut.write_bytes(data[:length])
        journal = Journal(cut, HEADER)
        assert journal.records == RECORDS[: max(0, sum(end <= length for end in ends) - 1)]
        for record in RECORDS[len(journal.records) :]:
            journal.append(record)
        journal._file.close()
        assert cut.read_bytes() == data


def test_a_damaged_record_ends_it(path):
    data = path.read_bytes()
    path.write_bytes(data.replace(b"score", b"scorf"))
    assert after(path) == RECORDS[:1]
    assert data.startswith(path.read_bytes())


def test_other_work(path):
    data = path.read_bytes()
    with pytest.raises(UsageError, match=r"partial is of other work, with a difference in: beam, lenpen\. Give the"):
        Journal(path, {"input": "abc", "beam": 5, "lenpen": 1}, resume=True)
    journal = Journal(path, {"input": "abd"})
    assert journal.records == []
    assert path.read_bytes() == data, "it is replaced when there is something to replace it by"
    journal.append("new")
    journal._file.close()
    assert path.read_bytes().endswith(b' "new"\n'), "all of the other is gone"
    assert after(path, {"input": "abd"}) == ["new"]


def test_a_header_of_other_work_that_was_cut(path):
    header = path.read_bytes().split(b"\n")[0]
    path.write_bytes(header[:-1])
    journal = Journal(path, {"input": "abd"}, resume=True)
    journal.append("new")
    journal._file.close()
    assert after(path, {"input": "abd"}) == ["new"]


def test_a_record_that_could_not_be_written_is_dropped(path):
    class Full:
        """A disk that fills up in the middle of a record."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            self.file.write(data[:-3])
            raise OSError(28, "No space left on device")

    journal = Journal(path, HEADER)
    file, journal._file = journal._file, Full(journal._file)
    with pytest.raises(OSError, match="No space"):
        journal.append("lost" * 9)
    journal._file = file
    journal.append("kept")
    journal._file.close()
    assert path.read_bytes().endswith(b' "kept"\n')
    assert after(path) == [*RECORDS, "kept"]


def test_removed(path):
    journal = Journal(path, HEADER)
    journal.remove()
    assert not path.exists()


@pytest.mark.parametrize("content", [b"mine", b"mine\n", b"00000000 {}\n", json.dumps(HEADER).encode() + b"\n"])
def test_a_file_of_somebody_else_is_kept(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    for resume in (False, True):
        with pytest.raises(UsageError, match="posnet did not write it"):
            Journal(tmp_path / "file", HEADER, resume)
    assert (tmp_path / "file").read_bytes() == content
    with pytest.raises(UsageError, match="posnet did not write it"):
        Journal(tmp_path, HEADER)


def test_two_processes_do_not_write_to_one(path):
    first = Journal(path, HEADER)
    with pytest.raises(UsageError, match="another process writes to this file"):
        Journal(path, HEADER)
    first.remove()


@pytest.mark.parametrize("content", [None, {"input": "other"}])
def test_two_processes_do_not_begin_one(tmp_path, content):
    path = tmp_path / "out.partial"
    if content is not None:
        other = Journal(path, content)
        other.append("old")
        other._file.close()
    first = Journal(path, HEADER)
    for _ in range(2):
        with pytest.raises(UsageError, match="another process writes to this file"):
            Journal(path, HEADER)
        first.append("done")
    first._file.close()
    assert after(path) == ["done"] * 2


def test_only_its_own_file_is_removed(path):
    journal = Journal(path, HEADER)
    path.unlink()
    other = Journal(path, HEADER)
    other.append("other")
    journal.remove()
    other._file.close()
    assert after(path) == ["other"]


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(path, monkeypatch):
    original, removed = fcntl.flock, []

    def late(file, operation):
        if not removed:
            removed.append(path.unlink())
        original(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    journal = Journal(path, HEADER)
    journal.append("new")
    journal._file.close()
    assert after(path) == ["new"]
