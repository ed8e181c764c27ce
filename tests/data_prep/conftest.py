import pytest

from posnet_fairseq.shared.progress import ProgressReporter
from support.server import Server


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


class Remembering(ProgressReporter):
    """A report whose last line can be asked for."""

    def say(self, text):
        self.said = text


@pytest.fixture
def report():
    return Remembering()
