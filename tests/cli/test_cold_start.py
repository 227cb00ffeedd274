"""Deciding one easy ONNX property imports only what that needs: most of its time is the start of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.files import write_vnnlib
from steadynet.interchange.vnnlib.robustness import robustness_property

# Each of these takes a noticeable part of a second to import. PyTorch imports the first four only for some functions.
NOT_NEEDED = (
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.fx.experimental.symbolic_shapes",
    "onnx.reference",
    "rich",
    "scipy",
    "matplotlib",
    "PIL",
    "steadynet.data",
    "steadynet.runs",
    "steadynet.report",
    "steadynet.experiments",
)
CODE = """
import sys
from steadynet.cli import main
code = main(sys.argv[2:])
print("loaded:", *[name for name in sys.argv[1].split(",") if name in sys.modules])
sys.exit(code)
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """A network with convolutions, batch norm, dense layers and biases, and a property that holds."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("instance")
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(4, 3)).eval()
    image = torch.rand(1, 6, 6)
    with torch.no_grad():
        label = int(network(image[None]).argmax())
    export_onnx(network, (1, 6, 6), folder / "network.onnx")
    holds = robustness_property(image - 1e-4, image + 1e-4, label=label, classes=3)
    write_vnnlib(folder / "property.vnnlib", holds)
    return str(folder / "network.onnx"), str(folder / "property.vnnlib")


def _said(*words: str) -> tuple[list[str], str]:
    command = [sys.executable, "-c", CODE, ",".join(NOT_NEEDED), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("form", ["verify", "vnncomp"])
def test_one_property_imports_what_it_needs(instance, form):
    network, property_file = instance
    words = {"verify": [property_file, "--network", f"f={network}"], "vnncomp": [network, property_file]}
    output, remark = _said(form, *words[form])
    assert output == ["unsat", "loaded:"]
    assert remark.startswith("unsat in ")
