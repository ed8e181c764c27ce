"""posnet-average, used carelessly."""

from hostile import Row, play, table

ROWS = [
    Row("no such folder", "posnet-average runs --num 2 --out out.pt", "runs: there is no such directory"),
    Row("more checkpoints than there are", "posnet-average run --num 9 --out out.pt", "there are only"),
    Row("none at all", "posnet-average run --num 0 --out out.pt", "--num 0: give 1 or more"),
    Row("a folder as the result", "posnet-average run --num 1 --out text", "text is a directory"),
    Row("as it should be", "posnet-average run --num 1 --out out.pt", "averaged into out.pt", 0, makes=("out.pt",)),
]


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
