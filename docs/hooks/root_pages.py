"""CHANGELOG.md and CONTRIBUTING.md, which live beside the README, as pages of the site."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/, and these."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=as_page((root / source).read_text(encoding="utf-8"))))
    return files


def as_page(text: str) -> str:
    """A page of the root as one of docs/: its links lead to the same places.

    >>> as_page("[one](docs/verifier.md), [two](CHANGELOG.md)")
    '[one](verifier.md), [two](changelog.md)'
    """
    text = text.replace("](docs/", "](")
    for source, page in PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text
