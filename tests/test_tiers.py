"""The division of the tests into quick and thorough ones."""

import re

import pytest

from support import tiers
from support.tiers import ALL, ONE_OF_EACH_KIND, TESTS, THOROUGH


@pytest.mark.parametrize("file", sorted(THOROUGH.keys() | ONE_OF_EACH_KIND.keys()))
def test_what_is_listed_is_there(file):
    """A test that was renamed would become quick unnoticed."""
    there = set(re.findall(r"^def (test_\w+)", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE))
    listed = THOROUGH.get(file, {}).keys() | ONE_OF_EACH_KIND.get(file, {}).keys()
    assert listed - {ALL} <= there


class Item:
    """What pytest collects, as far as it is looked at."""

    def __init__(self, file, function, **params):
        self.path, self.originalname, self.markers = TESTS / file, function, []
        if params:
            self.callspec = type("CallSpec", (), {"params": params})

    def add_marker(self, marker):
        self.markers.append(marker.name)


def test_only_what_is_listed_is_thorough(monkeypatch):
    monkeypatch.setattr(tiers, "THOROUGH", {"a.py": {"test_1": "9 s"}, "b.py": {ALL: "60 s"}})
    monkeypatch.setattr(tiers, "ONE_OF_EACH_KIND", {})
    items = [Item("a.py", "test_1"), Item("a.py", "test_2"), Item("b.py", "test_1"), Item("x/a.py", "test_1")]
    tiers.mark_thorough(items)
    assert [item.markers for item in items] == [["thorough"], [], ["thorough"], []]


def test_of_each_kind_the_first_of_the_lowest_rank_is_quick(monkeypatch):
    def tens(params):
        yield params["number"] // 10, params["number"] % 2

    monkeypatch.setattr(tiers, "ONE_OF_EACH_KIND", {"a.py": {"test_1": tens}})
    items = [Item("a.py", "test_1", number=number) for number in (1, 3, 2, 4, 11, 12, 13)]
    tiers.mark_thorough(items)
    assert [item.callspec.params["number"] for item in items if not item.markers] == [2, 12]
