"""The public names: all can be imported, and importing the package alone loads nothing heavy."""

import subprocess
import sys

import pytest

import steadynet


@pytest.mark.parametrize("name", steadynet.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(steadynet, name).__name__ == name
    assert name in dir(steadynet)


def test_the_public_names_are_these():
    first = {"NBC", "InputRegion", "Result", "Verdict", "load_trained", "resolve", "train", "verify"}
    assert set(steadynet.__all__) == first | {"crown_bounds", "evaluate", "Results", "UserError", "largest_radius"}
    assert set(steadynet._DEFINED_IN) == set(steadynet.__all__)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'steadynet' has no attribute 'trian'"):
        steadynet.trian  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    code = "import sys, steadynet; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
