"""Reads the commands of README.md, CONTRIBUTING.md and docs/*.md."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
# Options that make a model small, for commands of documents.
NARROW = " ".join(
    f"--{side}-embed-dim 32 --{side}-ffn-embed-dim 32 --{side}-attention-heads 2" for side in ("encoder", "decoder")
)
ONE_LAYER = "--encoder-layers 1 --decoder-layers 1"

_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`]+)`")
_OWN = r"(posnet|fairseq)-[a-z-]*[a-z]"
_ASSIGNMENT = r"""[A-Z_]+=("[^"]*"|\S*)"""
# How commands outside of blocks begin: with a program of posnet's or fairseq's, or another one and something behind it.
_COMMAND = re.compile(
    rf"({_ASSIGNMENT} )*({_OWN}(?![\w.:-])|\$[A-Z]+ |(bash|python|pip|torchrun|srun|sbatch) |source \S+/|\S*bin/\S+ )"
)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@dataclass(frozen=True)
class Command:
    """A command of a document.

    Attributes:
        document: path of the file, relative to the repository.
        line: number of its first line.
        text: the command, with continuation lines joined; it has several lines if it contains a heredoc.
        variables: (name, value) of the shell variables set before it, such as ``TRAIN="..."``.
    """

    document: str
    line: int
    text: str
    variables: tuple = ()

    def __str__(self):
        return f"{self.document}:{self.line}: {self.text}"

    def words(self):
        """The words of its first line; variables are expanded and split at spaces, as by the shell.

        Raises:
            ValueError: a quotation mark is not closed.
        """
        text = self.text.split("\n")[0]
        for name, value in self.variables:
            text = re.sub(rf"(?<!\S)\${name}(?!\S)", lambda _, value=value: shlex.join(value.split()), text)
        try:
            return shlex.split(text, comments=True)
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from error


def blocks(text):
    """Yield (line, language, content) of each fenced block."""
    for block in _FENCED.finditer(text):
        yield _line(text, block.start(2)), block[1], block[2]


def python(path):
    """The code of each block of Python of a document."""
    return [code for _, language, code in blocks((ROOT / path).read_text()) if language == "python"]


def prose(text):
    """The text with fenced blocks replaced by empty lines."""
    return _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)


def commands(path):
    """Yield the commands of a document in their order."""
    text = path.read_text()
    bash = [(line, content) for line, language, content in blocks(text) if language == "bash"]
    found = [statement for line, content in bash for statement in statements(line, content)]
    plain = prose(text)
    spans = [(_line(plain, span.start()), " ".join(span[1].split())) for span in _SPAN.finditer(plain)]
    found += [(line, span) for line, span in spans if looks_like_a_command(span)]
    variables = {}
    for line, statement in sorted(found, key=lambda item: item[0]):
        if re.fullmatch(_ASSIGNMENT, statement):
            name, _, value = statement.partition("=")
            variables[name] = value.strip('"')
        else:
            yield Command(str(path.relative_to(ROOT)), line, statement, tuple(variables.items()))


def looks_like_a_command(text):
    """Whether a text begins like a command."""
    return _COMMAND.match(text) is not None


def statements(line, block):
    """Yield (line, text) of each command of a block.

    Continuation lines are joined, a heredoc belongs to its command, and a comment "or: COMMAND" has one more command.
    """
    lines = iter(enumerate(block.split("\n")[:-1], line))
    for number, statement in lines:
        while statement.endswith("\\"):
            statement = f"{statement[:-1].rstrip()} {next(lines)[1].lstrip()}"
        if heredoc := _HEREDOC.search(statement):
            while not statement.endswith(f"\n{heredoc[1]}"):
                statement += f"\n{next(lines)[1]}"
        if statement.strip() and not statement.lstrip().startswith("#"):
            yield number, statement.strip()
        if other := re.search(r"# or: (.*)", statement):
            yield number, other[1]


def _line(text, offset):
    return text.count("\n", 0, offset) + 1
