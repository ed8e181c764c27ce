"""A report's page taken apart."""

import json
from html.parser import HTMLParser

import pytest

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart; fails where tags are not balanced.

    Attributes:
        tables: rows of the texts of their cells.
        attributes: (tag, name, value) of all elements.
        text: all outside of scripts and styles.
        data: of the scripts that hold data.
    """

    def __init__(self, html):
        super().__init__()
        self.open, self.tables, self.attributes, self.data = [], [], [], []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, text):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.data.append(json.loads(text, parse_constant=pytest.fail))
        if tag not in ("script", "style"):
            self.text += text
            if any(name in ("td", "th") for name, _ in self.open):
                self.tables[-1][-1][-1] += text
