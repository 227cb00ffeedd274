"""Run the code blocks of a Markdown page in order, as a reader would."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from places import ROOT
from steadynet.cli import main

RUN = ("python", "bash", "toml")
# Smaller numbers, so that the test is quick: it checks that the commands work, not what they find.
QUICKER = (
    (r"--epochs \d+", "--epochs 1"),
    (r"--pgd-steps \d+", "--pgd-steps 3"),
    (r"--per-class \d+", "--per-class 1"),
    (r"--timeout \d+", "--timeout 0.5"),
    (r"^steadynet train (?=.*digits)", "steadynet train --train-images 300 "),
)
_BLOCK = re.compile(
    r"(<!-- not run: [^\n]+ -->\n)?^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """One fenced block. It is run, unless a comment above it says why not. A block with a title is a file to write."""

    language: str
    code: str
    title: str | None
    excepted: bool

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.excepted


def page_text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    return [
        Block(language, code, title or None, bool(exception))
        for exception, language, title, code in _BLOCK.findall(page_text(page))
    ]


def write_files(page: str) -> None:
    """Write the blocks that have a title as files into the current folder."""
    for block in blocks(page):
        if block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")


def run_page(page: str) -> None:
    """Run the page in the current folder, its Python in one session."""
    session: dict[str, Any] = {"__name__": "page"}
    for block in filter(lambda block: block.is_run, blocks(page)):
        if block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.code, page, "exec", dont_inherit=True), session)
        else:
            run_commands(block.code)


def commands(code: str) -> list[str]:
    """The commands of a block, one per line; a backslash joins two lines."""
    return code.replace("\\\n", " ").splitlines()


def run_commands(code: str) -> None:
    for line in commands(code):
        program, *arguments = shlex.split(quicker(line), comments=True)
        assert program == "steadynet", f"mark it as <!-- not run: why -->: {line}"
        assert main(arguments) == 0, line


def quicker(command: str) -> str:
    for pattern, replacement in QUICKER:
        command = re.sub(pattern, replacement, command)
    return command
