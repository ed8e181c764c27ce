"""Stages: done once, again when something has changed."""

import shutil

import pytest

from posnet_fairseq.shared.disk import refuse_too_little_disk
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.stages import PROGRESS, FolderStage, perform_pending


class Line:
    """first → second → third, which count how often they are made."""

    def __init__(self, folder, report, options=(), temporary=False):
        self.report, self.made, self.stages = report, [], {}
        options = {"first": 1, "second": 2, "third": 3} | dict(options)
        for name in options:
            before = tuple(self.stages.values())[-1:]
            stage = FolderStage(
                folder / name,
                self._make(name, before),
                {name: options[name]},
                before,
                10,
                temporary and name == "first",
            )
            self.stages[name] = self.goal = stage

    def _make(self, name, before):
        def make(folder, report):
            self.made.append(name)
            texts = [(stage.folder / "text").read_text() for stage in before]
            (folder / "text").write_text("".join(texts) + name)
            (folder / f"x{PROGRESS}").write_text("a note for resuming")
            (folder / ".text.abc").write_text("what an interrupted run was writing")
            return {"made": 1}

        return make

    def run(self):
        perform_pending(self.goal, self.report)
        assert (self.goal.folder / "text").read_text() == "firstsecondthird"
        made, self.made = self.made, []
        return made


@pytest.fixture
def line(tmp_path, report):
    return lambda *options, **more: Line(tmp_path / "stages", report, options, **more)


def test_each_is_made_once(line):
    assert line().run() == ["first", "second", "third"]
    assert line().run() == []
    record = line().goal.record
    assert record["counts"] == {"made": 1}
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["finished"]
    assert list(record["files"]) == ["text"]


def test_an_option_makes_what_depends_on_it_anew(line, report):
    line().run()
    assert line(("second", 7)).run() == ["second", "third"]
    assert report.said == "second is repeated: second: 2 then, 7 now"
    assert line(("second", (7,))).run() == ["second", "third"]
    assert line(("second", (7,))).run() == []


@pytest.mark.parametrize("harm", ["removed", "shortened", "changed"])
def test_damage_is_noticed(line, harm, report):
    line().run()
    text = line().goal.folder / "text"
    if harm == "removed":
        text.unlink()
    else:
        text.write_text("first" if harm == "shortened" else "firstsecondTHIRD")
    assert line().run() == ["third"]
    assert report.said == "third is repeated: its files were changed after they had been made"


def test_earlier_stages_may_go(line):
    line().run()
    shutil.rmtree(line().stages["first"].folder)
    assert line().run() == []
    assert line(("third", 4)).run() == ["third"]
    assert line(("second", 4)).run() == ["first", "second", "third"]


def test_a_temporary_stage_goes_when_it_is_used(line):
    todo = line(temporary=True)
    assert todo.goal.needed() == 20
    assert todo.run() == ["first", "second", "third"]
    assert not todo.stages["first"].folder.exists()
    assert line(temporary=True).run() == []


def test_what_an_interrupted_run_left_is_given_to_the_same_stage_only(line, report):
    def interrupted(folder, report):
        (folder / "half").write_text("done")
        raise KeyboardInterrupt

    goal = line().goal
    stopped = FolderStage(goal.folder, interrupted, {"third": 3}, goal.after)
    for option, there in ((3, True), (4, False)):
        with pytest.raises(KeyboardInterrupt):
            perform_pending(stopped, report)
        found = []

        def look(folder, report, found=found):
            found.append((folder / "half").exists())
            return {}

        again = FolderStage(goal.folder, look, {"third": option}, goal.after)
        perform_pending(again, report)
        assert found == [there]
        assert [of["outcome"] for of in again.record["attempts"]] == ["interrupted"] * there + ["finished"]
        shutil.rmtree(again.folder)


def test_too_little_disk(tmp_path):
    refuse_too_little_disk(tmp_path / "not/there/yet", 1000)
    with pytest.raises(UsageError, match=r"yet: about [0-9,.]+ GB are needed there, [0-9,.]+ GB are free. Make room"):
        refuse_too_little_disk(tmp_path / "yet", 10**18)
