"""Progress bars of functions that are called from Python, and objects that describe themselves in one line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from steadynet import InputRegion, Result, Verdict, crown_bounds, evaluate, largest_radius, resolve, train, verify
from steadynet.claims import never
from steadynet.data import Images
from steadynet.regions import brightness, patch
from steadynet.runs.directory import RunDirectory
from steadynet.runs.progress import in_notebook
from steadynet.runs.trained import load_trained
from steadynet.training.observer import SilentObserver
from steadynet.verification.properties import Properties

PIXELS, LABELS = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2
SETTINGS = {"method": "natural", "epochs": 2, "batch_size": 3, "validation": 0.0}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 2))


def shell(**attributes):
    return SimpleNamespace(get_ipython=lambda: SimpleNamespace(**attributes))


@pytest.fixture
def notebook(monkeypatch):
    """A Jupyter kernel, as far as steadynet can tell."""
    monkeypatch.setitem(sys.modules, "IPython", shell(kernel=object()))


def run_train(folder, **arguments):
    images = SimpleNamespace(images=PIXELS, labels=LABELS)
    data = SimpleNamespace(train=images, test=images, classes=("a", "b"))
    return train(resolve(SETTINGS), folder / "run", network=network(), data=data, **arguments)


def run_verify(folder, **arguments):
    return verify(network(), PIXELS, LABELS, eps=[0.01, 0.02], timeout=5, **arguments)


def run_box(folder, **arguments):
    return verify(network(), PIXELS, LABELS, region=patch(0, 0, 1, 1, 0.1), timeout=5, **arguments)


def run_linear(folder, **arguments):
    return verify(network(), PIXELS, LABELS, region=brightness(-0.01, 0.01), timeout=5, **arguments)


def run_claim(folder, **arguments):
    return verify(network(), PIXELS, LABELS, eps=0.01, claim=never(1), timeout=5, **arguments)


def run_evaluate(folder, **arguments):
    return evaluate(network(), Images(PIXELS, LABELS), [0.1, 0.2], pgd_steps=2, **arguments)


CALLS = [(run_train, "training", "epoch 2/2"), (run_verify, "verifying", "ε 0.02: "), (run_evaluate, "attacking", "")]
CALLS += [
    (run_box, "verifying", "patch"),
    (run_linear, "verifying", "brightness"),
    (run_claim, "verifying", "ε 0.01: "),
]


def test_a_notebook_is_told_from_a_script_and_from_ipython_in_a_terminal(monkeypatch, notebook):
    assert in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", shell())
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


@pytest.mark.parametrize(("call", "word", "note"), CALLS)
def test_notebooks_show_a_bar_that_ends_at_100_percent(call, word, note, tmp_path, notebook, capsys):
    call(tmp_path)
    last = capsys.readouterr().out.split("\r")[-1]
    assert word in last
    assert "100%" in last
    assert note in last


@pytest.mark.parametrize(("call", "word", "note"), CALLS)
def test_scripts_show_a_bar_only_if_asked_for(call, word, note, tmp_path, capsys):
    call(tmp_path)
    assert capsys.readouterr() == ("", "")
    call(tmp_path, progress=True, **({"overwrite": True} if call is run_train else {}))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert word in shown.err
    assert "100%" in shown.err


@pytest.mark.parametrize(("call", "word", "note"), CALLS)
def test_a_notebook_can_do_without(call, word, note, tmp_path, notebook, capsys):
    call(tmp_path, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_caller_who_follows_by_other_means_gets_no_second_bar(tmp_path, notebook, capsys):
    attacked, batches = [], []
    observer = SilentObserver()
    observer.on_batch = lambda position, phase, radius: batches.append(position.batch)
    run_train(tmp_path, observer=observer)
    run_evaluate(tmp_path, on_images=attacked.append)
    assert capsys.readouterr() == ("", "")
    assert batches == [1, 2, 1, 2]
    assert attacked == [6, 6]


def test_a_bar_does_not_outlive_an_error(notebook, capsys):
    def fail(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(network(), Images(PIXELS, LABELS), 0.1, pgd_steps=1, on_images=fail, progress=True)
    capsys.readouterr()
    run_evaluate(None, progress=False)
    assert capsys.readouterr() == ("", "")


def test_objects_describe_themselves_in_one_short_line(tmp_path):
    run = run_train(tmp_path)
    region = InputRegion.around(PIXELS, 0.1)
    objects = [
        run,
        load_trained(run.path, network()),
        region,
        Properties.around(network(), PIXELS, LABELS, 0.1),
        Result(Verdict.SAT, 0.25, counterexample=torch.rand(3, 32, 32), decided_by="attack"),
        run_verify(tmp_path),
        crown_bounds(network(), region),
        largest_radius(network(), PIXELS[0], 0, tolerance=0.1),
    ]
    for each in objects:
        assert len(repr(each).replace(str(tmp_path), "")) < 150
        assert "\n" not in repr(each)
        assert "tensor" not in repr(each)
    assert repr(objects[4]) == "Result(sat in 0.25 s, attack)"
    assert repr(RunDirectory(Path("runs/first"))) == "RunDirectory('runs/first')"
