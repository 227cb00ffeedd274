"""Networks that were trained elsewhere, from Python and from the command line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from onnx_files import KerasTwin, keras
from steadynet import UserError, Verdict, load_trained, verify
from steadynet.cli import main
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.runs.directory import RunDirectory
from steadynet.runs.imported import ForeignNetwork, import_network, read_weights
from steadynet.verification.verdicts import read_rows

SHAPE = (1, 2, 2)
MODEL = """
from torch import nn
def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
"""


def small(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a network in each form, and images that it classifies right."""
    monkeypatch.chdir(tmp_path)
    network = small()
    images = torch.rand(6, *SHAPE)
    np.savez("images.npz", X=images.numpy(), y=network(images).argmax(1).numpy())
    export_onnx(network, SHAPE, "net.onnx")
    (tmp_path / "net.onnx.gz").write_bytes(gzip.compress((tmp_path / "net.onnx").read_bytes()))
    (tmp_path / "model.py").write_text(MODEL)
    torch.save(network.state_dict(), "weights.pt")
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}}, "checkpoint.pt")
    torch.save(network, "whole.pt")
    return tmp_path


def summary(capsys):
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ["net.onnx"],
        ["net.onnx.gz"],
        ["model.py:small", "--weights", "weights.pt"],
        ["model.py:small", "--weights", "checkpoint.pt"],
    ],
)
def test_every_form_gives_the_verdicts_of_the_network_itself(place, words, capsys):
    stored = np.load("images.npz")
    direct = verify(small(), stored["X"], stored["y"], 0.02)
    assert main(["verify", *words, "--data", "images.npz", "--eps", "0.02", "--timeout", "10", "--json"]) == 0
    (radius,) = summary(capsys)["radii"]
    assert radius["unsat"] == direct.summary()["proved"]
    assert radius["properties"] == 6  # every image, not a fifth of them


def test_the_run_directory_works_like_any_other(place, capsys):
    assert main(["verify", "net.onnx", "--data", "images.npz", "--eps", "0.02", "--out", "here"]) == 0
    assert main(["evaluate", "here", "--eps", "0.02", "--pgd-steps", "2", "--json"]) == 0
    assert main(["cross-check", "here", "--eps", "0.02", "--per-class", "1"]) == 0
    assert main(["report", "here", "--out", "page", "--no-figures"]) == 0
    images = torch.rand(5, *SHAPE)
    assert torch.allclose(load_trained("here").network(images), small()(images), atol=1e-6)


def test_a_report_of_an_onnx_file(place, capsys):
    assert main(["report", "net.onnx", "--out", "page", "--no-figures"]) == 2
    assert "steadynet verify net.onnx" in capsys.readouterr().err
    assert main(["verify", "net.onnx", "--data", "images.npz", "--eps", "0.02"]) == 0
    assert main(["report", "net.onnx", "--out", "page", "--no-figures"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--brightness", "-0.001", "0.001"],
        ["--contrast", "0.999", "1.001"],
        ["--patch", "0", "0", "1", "1"],
        ["--channel-eps", "0.001"],
        ["--region", "limits.npz"],
    ],
)
def test_other_regions(place, words, capsys):
    images = np.load("images.npz")["X"]
    np.savez("limits.npz", lower=images - 0.001, upper=images + 0.001)
    assert main(["verify", "net.onnx", "--data", "images.npz", *words, "--timeout", "10", "--json"]) == 0
    found = summary(capsys)
    assert found["properties"] == 6
    assert found["proved"] + found["refuted"] == 6
    assert found["proved"] or "--patch" in words
    rows = (place / "runs" / "net" / "regions.csv").read_text().splitlines()
    assert len(rows) == 7
    assert main(["verify", "net.onnx", "--data", "images.npz", *words, "--eps", "0.1"]) == 2


def test_limits_that_do_not_fit(place, capsys):
    np.savez("limits.npz", lower=np.zeros(3), upper=np.ones(3))
    assert main(["verify", "net.onnx", "--data", "images.npz", "--region", "limits.npz"]) == 2
    assert "fit neither" in capsys.readouterr().err


def test_normalisation_is_a_part_of_the_network(place):
    images = torch.rand(5, *SHAPE)
    expected = small()((images - 0.5) / 0.25)
    for number, foreign in enumerate(
        [
            ForeignNetwork("net.onnx", None, (0.5,), (0.25,)),
            ForeignNetwork("model.py:small", "weights.pt", (0.5,), (0.25,)),
        ]
    ):
        network = import_network(foreign, "images.npz", f"run-{number}").network
        assert torch.allclose(network(images), expected, atol=1e-5)


def test_flat_networks_take_images(place):
    flat = nn.Sequential(*list(small())[1:])
    export_onnx(flat, (4,), "flat.onnx")
    network = import_network(ForeignNetwork("flat.onnx"), "images.npz").network
    images = torch.rand(5, *SHAPE)
    assert torch.allclose(network(images), flat(images.flatten(1)), atol=1e-6)


def test_a_network_that_changed_is_not_mixed_with_the_old_one(place, capsys):
    import_network(ForeignNetwork("net.onnx"), "images.npz")
    export_onnx(small(seed=1), SHAPE, "net.onnx")
    with pytest.raises(UserError, match="another network"):
        import_network(ForeignNetwork("net.onnx"), "images.npz")
    import_network(ForeignNetwork("net.onnx"), "images.npz", "elsewhere")


def test_training_goes_on_from_an_onnx_network(place):
    words = ["--data", "digits", "--method", "nbc", "--epochs", "1", "--train-images", "64", "--validation", "0"]
    torch.manual_seed(0)
    before = nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.ReLU(), nn.Linear(5, 10))
    export_onnx(before, (1, 28, 28), "digits.onnx")
    assert main(["train", "--init", "digits.onnx", *words, "--lr", "1e-3", "--out", "tuned"]) == 0
    after = load_trained("tuned").network
    images = torch.rand(5, 1, 28, 28)
    change = (after(images) - before(images)).abs().max().detach()
    assert 0 < float(change) < 0.5  # one step from its weights, not from new ones


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.onnx", "--data", "images.npz"], "cannot read none.onnx"),
        (["net.onnx"], "say which images"),
        (["net.onnx", "--data", "images.npz", "--weights", "weights.pt"], "leave out --weights"),
        (["net.onnx", "--data", "images.npz", "--mean", "0.5"], "belong together"),
        (["model.py:small", "--data", "images.npz"], "--weights"),
        (["model.py:small", "--weights", "whole.pt", "--data", "images.npz"], "state_dict"),
        (["model.py:small", "--weights", "images.npz", "--data", "images.npz"], "images.npz"),
        (["weights.pt", "--data", "images.npz"], "is no network"),
        (["nowhere", "--data", "images.npz"], "does not exist"),
    ],
)
def test_mistakes_are_one_clear_line(place, words, message, capsys):
    assert main(["verify", *words, "--eps", "0.1"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_radius_must_be_given(place, capsys):
    assert main(["verify", "net.onnx", "--data", "images.npz"]) == 2
    assert "--eps" in capsys.readouterr().err


def test_single_scores_and_other_shapes_are_named(place):
    export_onnx(nn.Sequential(nn.Flatten(), nn.Linear(4, 1)), SHAPE, "one.onnx")
    with pytest.raises(UserError, match="single score"):
        import_network(ForeignNetwork("one.onnx"), "images.npz")
    export_onnx(nn.Sequential(nn.Flatten(), nn.Linear(9, 3)), (1, 3, 3), "larger.onnx")
    with pytest.raises(UserError, match=r"\(1, 3, 3\)"):
        import_network(ForeignNetwork("larger.onnx"), "images.npz")


def test_a_file_with_code_is_not_run(place):
    with pytest.raises(UserError, match="may run code"):
        read_weights(place / "whole.pt")


def test_models_in_memory(place):
    stored = np.load("images.npz")
    found = verify(onnx.load("net.onnx"), stored["X"], stored["y"], 0.02)
    assert [r.verdict for r in found] == [r.verdict for r in verify("net.onnx", stored["X"], stored["y"], 0.02)]


def test_networks_and_images_with_the_channels_last(tmp_path, monkeypatch):
    """A network from Keras, and its images as Keras keeps them: no sampled change refutes what is proved."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    keras(tmp_path / "keras.onnx")
    images = torch.rand(6, 6, 6, 1)
    labels = KerasTwin()(images).argmax(1)
    np.savez("images.npz", X=images.numpy(), y=labels.numpy())
    assert main(["verify", "keras.onnx", "--data", "images.npz", "--eps", "0.05", "--timeout", "10"]) == 0
    rows = read_rows(RunDirectory(tmp_path / "runs/keras"))
    assert len(rows) == 6
    for row in rows:
        offsets = 0.05 * (2 * torch.rand(500, 6, 6, 1) - 1)
        read = KerasTwin()((images[row.index] + offsets).clamp(0, 1)).argmax(1)
        assert row.verdict in (Verdict.UNSAT, Verdict.SAT)
        assert row.verdict is Verdict.SAT or bool((read == labels[row.index]).all())
