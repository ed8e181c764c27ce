"""YAML files, read strictly."""

from pathlib import Path
from typing import Any

import yaml

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines

_MOST_KEYS = 10_000  # of a mapping


class UniqueKeys(yaml.composer.Composer):
    """Mixin for a loader, which refuses duplicate keys, of which YAML would take the last one."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Return a mapping as it is written: keys that come from ``<<`` may be there again, with other values.

        Raises:
            yaml.MarkedYAMLError: a key occurs twice.
        """
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node


class TextLoader(UniqueKeys, yaml.BaseLoader):
    """Loader that leaves all scalars as they are written: 7e-4, off."""


class PlainLoader(UniqueKeys, yaml.SafeLoader):
    """Loader of plain data: texts, numbers, switches, lists and mappings."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what ``<<`` refers to, up to a number of keys that does not fill the memory.

        PyYAML before 6.0.4 repeats the keys of a mapping for each of its aliases.
        """
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:
            problem = f"a mapping has more than {_MOST_KEYS:,} keys"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def number_or_time(self, node: yaml.ScalarNode) -> object:
        """Return a number, or a text with a colon or of many digits as it is: YAML would read 12:30 as 750."""
        text = self.construct_scalar(node)
        if ":" in text or len(text) > 40:
            return text
        return self.construct_yaml_int(node) if node.tag.endswith(":int") else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", PlainLoader.number_or_time)


def read_yaml(path: str | Path, loader: type[TextLoader] | type[PlainLoader] = TextLoader) -> Any:
    """Return the content of a YAML file, by default with all scalars as text.

    Raises:
        UsageError: the file is missing or not YAML, or has a key twice in a mapping.
    """
    text = "\n".join(read_lines(path, small=True))
    try:
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise UsageError(f"{path} is not YAML{line}: {getattr(error, 'problem', error)}. Correct it.") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply. Correct it.") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of dates, tags
        raise UsageError(f"{path} has a value that YAML cannot read ({error}). Put it in quotes.") from error
