"""Model folders: a trained model with everything that its use needs, and nothing that runs code.

| file | content |
|---|---|
| ``config.json`` | version of the format, architecture, languages, options, search settings |
| | hashes of these entries and of the files below, which show what was damaged or exchanged |
| ``model.safetensors`` | weights; those that two modules share, once |
| ``dict.LANGUAGE.txt``, ``dict.txt`` | dictionaries, of a language model its only one |
| ``dataset.json`` and the files that it names | how text is split into tokens |

A folder is read as the content of a checkpoint whose data are in the folder itself, so that all that follows is the
same for both.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from posnet_fairseq import __version__
from posnet_fairseq.inference import checkpoints
from posnet_fairseq.inference.checkpoints import State, Weights, is_language_model
from posnet_fairseq.inference.search.search_settings import ENTRY, recorded_search
from posnet_fairseq.inference.vocabularies import languages_of
from posnet_fairseq.mixers.bases.mixer_settings import named_mixers
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import DamagedError, UsageError, unreadable
from posnet_fairseq.shared.files import check_file, read_small, utf8_name, write_lines
from posnet_fairseq.shared.records import digest, sealed
from posnet_fairseq.shared.schema import convert, read_json
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.dictionary import dictionary_file
from posnet_fairseq.transformer.architectures import archs, gpt_archs

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 2  # from 2 on it has hashes
_LARGEST_CONFIG = 2**20  # bytes; a real one has a few thousand
_WHAT, AGAIN = "JSON as posnet-export writes it", "Copy the folder again, or export the model again."


class _Config(msgspec.Struct):
    format: Annotated[int, msgspec.Meta(ge=1)]
    architecture: str
    options: dict[str, Any]
    source_lang: str | None = None  # a language model has none
    target_lang: str | None = None
    search: dict[str, Any] = {}

    def state(self, folder: Path) -> State:
        """Return the content of a checkpoint of the same model, without its weights."""
        task = {"source_lang": self.source_lang, "target_lang": self.target_lang, "data": folder}
        cfg = {"model": self.options | {"_name": self.architecture}, "task": task}
        return {"cfg": cfg, "extra_state": {ENTRY: self.search}}

    def __post_init__(self) -> None:
        if self.format > FORMAT:
            raise ValueError(
                f"it has the format {self.format}, and this posnet ({__version__}) reads formats up to {FORMAT}, so "
                "that a newer posnet is needed"
            )
        if self.architecture not in (*archs(), *gpt_archs()):
            raise ValueError(f"there is no architecture {self.architecture!r:.100}")
        state = self.state(Path())
        unknown = sorted(self.options.keys() - {option.name for option in checkpoints.known_options(state)})
        if unknown:
            raise ValueError(f"no model of posnet has the option {unknown[0]:.100}")
        for language in () if is_language_model(state) else (self.source_lang, self.target_lang):
            if not language or Path(language).name != language or len(language) > 100:
                raise ValueError(f"the language {language!r:.50} is no name such as de")
        checkpoints.model_options(state)
        recorded_search(state)


def read_model(path: str | Path, with_weights: bool = True) -> State:
    """Return the content of a checkpoint or a model folder, also without weights, which take most time."""
    folder = Path(path)
    if not folder.is_dir():
        return checkpoints.read_checkpoint(path, with_weights)
    if not (folder / CONFIG).exists():
        raise UsageError(
            f"{path} is a directory. {checkpoints.checkpoint_in(folder)}, or a model folder that posnet-export wrote: "
            f"it has a {CONFIG}."
        )
    entries = read_json(folder / CONFIG, dict[str, Any], _WHAT, AGAIN, _LARGEST_CONFIG)
    arch, options = entries.get("architecture"), entries.get("options")
    if isinstance(arch, str) and isinstance(options, dict):
        checkpoints.check_plugin(path, arch, options, entries.get("plugin"))
    config = convert(entries, _Config, folder / CONFIG, _WHAT, AGAIN)
    weights = _read_weights(folder / WEIGHTS, config.options) if with_weights else {}
    if fault := checkpoints.fault_of_weights(weights):
        raise UsageError(f"{folder / WEIGHTS}: {fault}. Export the model again.")
    _refuse_changes(folder, entries, "" if with_weights else WEIGHTS)
    return config.state(folder) | {"model": weights}


def _refuse_changes(folder: Path, config: dict[str, Any], unread: str) -> None:
    """Refuse a folder whose configuration or files are not those that were written together."""
    files = config.get("files")
    if not isinstance(files, dict) or config.get("sha256") != sealed(config)["sha256"]:
        raise UsageError(f"{folder / CONFIG} was changed since posnet-export wrote it, or lacks its hash. {AGAIN}")
    # A missing file is missed by whoever needs it; one more is of no use, except rules of tokenization.
    for name, found in _hashes(folder, unread).items():
        if files.get(name, found if name != CARD else None) != found:
            raise UsageError(f"{folder / name} is not the file that {CONFIG} was written with. {AGAIN}")


def _hashes(folder: Path, unread: str = "") -> dict[str, str]:
    """Return SHA-256 by name of the files, but `unread`, that a translation needs; the card has those of subwords."""
    small = [path for path in (*folder.glob("dict*.txt"), folder / CARD) if path.exists()]
    large = [path for path in folder.glob("*.safetensors") if path.is_file() and path.name != unread]
    hashes = {path.name: hashlib.sha256(read_small(path)).hexdigest() for path in small}
    return hashes | {path.name: digest(path) for path in large}


def write_config(folder: Path, entries: dict[str, Any]) -> None:
    """Write the configuration of a model folder, whose other files are there, with their hashes and its own."""
    config = sealed(entries | {"files": _hashes(folder)})
    write_lines(folder / CONFIG, [json.dumps(config, indent=1, ensure_ascii=False)])


def _read_weights(path: Path, options: dict[str, Any]) -> Weights:
    """Return weights by name, shared ones under each of their names."""
    check_file(path)
    try:
        with utf8_name(path) as name:
            weights = load_file(name)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:  # sizes that overflow, unknown types
        raise DamagedError(f"{path} is damaged or no file of safetensors ({error!s:.100}). {AGAIN}") from error
    except OSError as error:
        raise unreadable(path, error) from error
    return weights | {name: weights[stored] for name, stored in _shared(options).items() if stored in weights}


def _shared(options: dict[str, Any]) -> dict[str, str]:
    """Return names of weights that are other weights, too, and the names that these are stored under."""
    words, output = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
    if options.get("share_all_embeddings"):
        return dict.fromkeys((words, output), "encoder.embed_tokens.weight")
    return {output: words} if options.get("share_decoder_input_output_embed") else {}


def plugin_of(options: dict[str, Any]) -> str:
    """Return the package whose mixers a model of these options has, "" if all are of posnet."""
    packages = {get_mixer(name).__module__.partition(".")[0] for name in named_mixers(options)}
    return max(packages - {"posnet_fairseq"}, default="")


def write_model(folder: Path, state: State, weights: Weights, data: Path) -> None:
    """Write configuration, weights and dictionaries of a model, of the directory `data`, into a folder."""
    every = vars(checkpoints.model_options(state))
    options = {name: value for name, value in every.items() if value is not None and not name.endswith("_path")}
    config: dict[str, Any] = {"format": FORMAT, "posnet": __version__, "architecture": checkpoints.model_arch(state)}
    if plugin := plugin_of(options):
        config["plugin"] = plugin
    languages = languages_of(state, data)
    assert languages is not None  # dictionaries were found by them
    if any(languages):
        config |= dict(zip(("source_lang", "target_lang"), languages, strict=True))
    for name in {*map(dictionary_file, languages)}:
        shutil.copyfile(data / name, folder / name)
    config |= {"options": options}
    if search := recorded_search(state):
        config[ENTRY] = search
    once = {name: weight.contiguous() for name, weight in weights.items() if name not in _shared(options)}
    (folder / WEIGHTS).write_bytes(save(once))  # safetensors has errors, permissions and encodings of names of its own
    write_config(folder, config)


def files_of_models(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the paths of checkpoints, and of the files of model folders that a model is read from."""
    for path in map(Path, paths):
        yield from (path / CONFIG, path / WEIGHTS, *files_of_data(path)) if path.is_dir() else (path,)


def files_of_data(folder: str | Path) -> list[Path]:
    """Return paths of a dataset's files: dictionaries, binary sets, the card and the files that it names."""
    folder = Path(folder)
    named = DatasetCard.read_if_whole(folder).named_files  # data of fairseq-preprocess have no card
    found = [path for pattern in ("dict*.txt", "*.idx", "*.bin", CARD) for path in folder.glob(pattern)]
    return [*found, *(folder / name for name in sorted(named))]
