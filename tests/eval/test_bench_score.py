import pytest

from posnet_fairseq.cli import bench
from support.commands import SMALL_BENCH, fails


@pytest.mark.thorough  # 9 s: runs sacreBLEU's own test
def test_against_sacrebleus_paired_test(capsys):
    """Both ways return equal p."""
    bench.main(["score", *SMALL_BENCH["score"].split()])
    shown = capsys.readouterr().out
    assert shown.count("the same") == 2
    assert "B = 40, processes: 1" in shown


@pytest.mark.thorough  # 7 s
def test_against_comets_own_api(capsys, comet, encoder):
    command = f"score --systems 2 --segments 6 --comet-model {comet} --comet-encoder {encoder}"
    bench.main(command.split())
    shown = capsys.readouterr().out
    assert "COMET of 2 systems, 6 lines" in shown
    assert "e-0" in shown  # the largest difference


@pytest.mark.parametrize("systems", [1, 17])
def test_systems_out_of_range(capsys, systems):
    said = fails(capsys, bench.main, "score", "--systems", str(systems))
    assert f"--systems {systems}: give 2 to 16" in said
