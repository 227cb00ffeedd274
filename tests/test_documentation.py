"""The README's code and commands run as written (with fewer epochs and shorter time-outs)."""

import re
import shlex
from pathlib import Path

import pytest

from steadynet.cli import main

ROOT = Path(__file__).parent.parent


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found
    for code in found:
        exec(compile(code, page, "exec"), {"__name__": "page"})


def test_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("README.md", "bash") for line in block.splitlines()]
    assert len(commands) >= 3
    for command in commands:
        quick = re.sub(r"--epochs \d+", "--epochs 1", command).replace("--pgd-steps 100", "--pgd-steps 3")
        quick = quick.replace("--per-class 10", "--per-class 1").replace("--timeout 60", "--timeout 0.5")
        program, *arguments = shlex.split(quick)
        assert program == "steadynet"
        assert main(arguments) == 0, capsys.readouterr().err


def test_every_make_target_of_the_readme_exists():
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("README.md", "console")), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert all(f"\n{target}:" in makefile for target in targets)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/verifier.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert all(((ROOT / page).parent / link).is_file() for link in links), links
