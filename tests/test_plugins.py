"""Plug-ins of other packages: a real one through the command line, and broken ones, of which each costs one line."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from steadynet import objectives, plugins
from steadynet.cli import main
from steadynet.data.cache import sha256
from steadynet.errors import UserError
from steadynet.plugins import discover, discovery, make

SOURCE = Path(plugins.__file__).parents[2]

# A package with a training method, a verifier and a data set

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "steadynet-extras"
version = "1.0"

[tool.setuptools]
packages = ["extras"]
package-data = { extras = ["*.npz"] }

[project.entry-points."steadynet.objectives"]
loud = "extras:Loud"

[project.entry-points."steadynet.verifiers"]
guess = "extras:Guess"

[project.entry-points."steadynet.data"]
stripes = "extras:Stripes"
"""

MODULE = """
from dataclasses import dataclass
from pathlib import Path

from steadynet.data.base import DatasetPlugin
from steadynet.objectives.base import Objective
from steadynet.plugins import setting
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers.base import Verifier


@dataclass(frozen=True, kw_only=True)
class Loud(Objective):
    name = "loud"
    summary = "small logits"
    volume: float = setting(2.5, "how loud")

    def terms(self, batch):
        return {"noise": self.volume * batch.clean.logits.square().mean()}


@dataclass(frozen=True, kw_only=True)
class Guess(Verifier):
    name = "guess"
    summary = "never knows"
    modesty: int = setting(1, "how modest")

    def verify(self, properties, on_result):
        for index in range(len(properties)):
            on_result(index, Result(Verdict.UNKNOWN, 0.0))


@dataclass(frozen=True)
class Stripes(DatasetPlugin):
    name = "stripes"
    summary = "bright or dark"
    licence = "nobody's"
    image_shape = (1, 4, 4)
    classes = ("dark", "bright")
    hashes = HASHES
    path = Path(__file__).with_name("stripes.npz")
"""

# One process runs all commands, because most of the time of a command is the import of torch.
COMMANDS = """
import torch
from steadynet import resolve, verify
from steadynet.cli import main

for what in ("methods", "verifiers", "data"):
    assert main(["list", what]) == 0
training = "--data stripes --model M1 --method loud+nbc --epochs 1 --volume 3 --device cpu --threads 1 --out run"
assert main(["train", *training.split()]) == 0
checking = "run --verifier guess --eps 0.1 --per-class 1 --modesty 7"
assert main(["verify", *checking.split()]) == 0
assert resolve({"method": "loud", "volume": 4}).methods == {"loud": {"volume": 4}}
(result,) = verify(torch.nn.Linear(1, 2), torch.tensor([[0.5]]), torch.tensor([0]), 0.1, verifier="guess")
assert result.verdict.value == "unknown"
"""


def build_package(folder: Path) -> Path:
    """Write the source of the package."""
    bright = np.arange(40, dtype=np.uint8) % 2
    images = np.full((40, 1, 4, 4), 250, dtype=np.uint8) * bright[:, None, None, None]
    arrays = {"train_images": images, "train_labels": bright, "test_images": images, "test_labels": bright}
    (folder / "extras").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    hashes = {name: sha256(array) for name, array in arrays.items()}
    (folder / "extras" / "__init__.py").write_text(MODULE.replace("HASHES", repr(hashes)))
    np.savez(folder / "extras" / "stripes.npz", **arrays)
    return folder


def test_another_package_adds_a_method_a_verifier_and_a_data_set(tmp_path):
    installed = tmp_path / "installed"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    source = build_package(tmp_path / "source")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", installed, source], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(installed)]), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMMANDS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout
    for line in ("loud: small logits", "guess: never knows", "bright or dark", "loud: volume 3.0", "trained: run"):
        assert line in text
    assert "2/2 (100.0 %)" in text  # both properties are unknown
    assert (tmp_path / "run" / "verdicts.csv").read_text().count("guess") == 2


# Entry points that cannot be used


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Install packages that consist of one module and entry points of ``steadynet.objectives``."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, code: str, **entries: str) -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        information = tmp_path / f"{module}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{attribute}" for name, attribute in entries.items()]
        (information / "entry_points.txt").write_text("\n".join(["[steadynet.objectives]", *lines, ""]))
        monkeypatch.delitem(sys.modules, module, raising=False)

    discovery._installed.cache_clear()
    yield install
    discovery._installed.cache_clear()


def method(name: str, body: str = "", decorator: str = "@dataclass(frozen=True, kw_only=True)\n") -> str:
    """Write the code of a training method, the class ``Method``."""
    return (
        "from dataclasses import dataclass\n"
        "from steadynet.objectives.base import Objective\n"
        "from steadynet.plugins import setting\n"
        f"{decorator}class Method(Objective):\n"
        f"    name = '{name}'\n"
        "    summary = 'a method of a test'\n"
        "    def terms(self, batch):\n        return {'loss': batch.clean.logits.mean()}\n"
        f"{body}"
    )


def test_a_plug_in_is_a_choice_like_a_built_in_one(declare):
    declare("good", method("mine", "    weight: float = setting(1.0, 'its weight')\n"), mine="Method")
    assert objectives.parts_of("mine+nbc") == ["mine", "nbc"]
    assert make(objectives.available()["mine"], {"weight": 2}).weight == 2
    with pytest.raises(UserError, match="unknown method 'mime': did you mean 'mine'"):
        objectives.parts_of("mime")
    assert "mine" not in discover(objectives, objectives.Objective)  # without the entry points


@pytest.mark.parametrize(
    ("code", "name", "reason"),
    [
        ("import a_missing_module", "mine", "ModuleNotFoundError: No module named 'a_missing_module'"),
        ("1 / 0", "mine", "ZeroDivisionError: division by zero"),
        ("Other = 3", "mine", "AttributeError: .*'Method'"),
        ("Method = 3", "mine", "bad_one:Method is not a subclass of steadynet.objectives.base.Objective"),
        ("class Method: name = 'mine'", "mine", "is not a subclass"),
        (method("other"), "mine", "has the name 'other'; both names must be the same word"),
        (method("mine").replace("summary", "about"), "mine", "does not define summary"),
        (method("mine").replace("def terms", "def others"), "mine", "does not define terms"),
        (method("mine", "    x: float = setting(1.0, 'x')\n", ""), "mine", "must be a dataclass"),
        (
            method("mine", "    x: int = setting('one', 'x')\n"),
            "mine",
            "setting x = 'one' must be a whole number",
        ),
        (method("nbc"), "nbc", "steadynet has a plug-in of this name"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_one_warning_and_the_others_load(declare, code, name, reason):
    declare("bad-one", code, **{name: "Method"})
    declare("good", method("better"), better="Method")
    with pytest.warns(UserWarning, match=reason) as caught:
        known = objectives.available()
    (warning,) = [str(one.message) for one in caught]
    assert warning.startswith(f"skipped the plug-in '{name}' (steadynet.objectives) of the package bad-one: ")
    assert "\n" not in warning
    assert "better" in known
    assert "mine" not in known
    assert known["nbc"].__module__ == "steadynet.objectives.nbc"
    assert objectives.available() == known  # without another warning


def test_of_two_packages_with_one_name_the_first_in_the_alphabet_wins(declare):
    declare("zebra", method("mine"), mine="Method")
    declare("aardvark", method("mine"), mine="Method")
    with pytest.warns(UserWarning, match="package zebra: the package aardvark has a plug-in of this name"):
        assert objectives.available()["mine"].__module__ == "aardvark"


def test_a_setting_named_like_a_flag_of_the_command_has_no_flag(declare, capsys):
    declare("good", method("mine", "    out: int = setting(1, 'something else')\n"), mine="Method")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit):
            main(["train", "--help"])
    expected = "warning: the setting 'out' (mine: something else) has no flag: steadynet train has another flag --out"
    assert expected in capsys.readouterr().err
