"""How the grid of all methods gets its settings: epochs that fit the minutes, and trials on validation images."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from steadynet.experiments.cells import cells_of
from steadynet.experiments.grid import read_grid
from steadynet.files import read_toml
from steadynet.training.settings import resolve

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import method_tables
from method_minutes import fitting
from method_tables import MARK, MethodSettings, as_toml, read_settings, show
from tune_methods import Trial, changed_strength, shortened, with_choice


def settings(method, **values):
    return resolve({"data": "mnist", "model": "M1", "eps": 0.1, "method": method, "epochs": 12} | values)


def test_epochs_that_fit():
    # 54,000 images in batches of 128 are 422 steps; 2 minutes of 25 ms steps are 4,800 of them: 11.4 epochs
    assert fitting(settings("nbc"), 0.025, 54_000, 2.0) == {"epochs": 11, "warmup": 5.5}
    assert fitting(settings("natural"), 0.025, 54_000, 2.0) == {"epochs": 11}
    assert fitting(settings("ibp"), 0.025, 54_000, 2.0) == {"epochs": 11}, "its recipe makes ε rise"
    # 240 steps of 0.5 s: not one epoch, but 240 batches of it
    assert fitting(settings("madry"), 0.5, 54_000, 2.0) == {"epochs": 1, "train_images": 240 * 128, "warmup": 0.5}


def test_a_trial_is_a_third_as_long():
    whole = settings("nbc", warmup=6.0)
    short = shortened(whole, {"phases": "nbc:12", "warmup": 6.0, "lr": 1.0}, 3.0, 54_000)
    assert short == {"method": "nbc", "epochs": 4, "warmup": 2.0, "lr": 1.0, "threads": 1, "device": "cpu"}
    one = shortened(settings("taps", epochs=1), {"phases": "taps:1"}, 3.0, 54_000)
    assert (one["epochs"], one["train_images"]) == (1, 18_000)
    two = shortened(settings("taps", epochs=1, train_images=30_000), {"train_images": 30_000}, 3.0, 54_000)
    assert (two["epochs"], two["train_images"]) == (1, 10_000)


@pytest.mark.parametrize("method", read_grid("methods").methods)
def test_the_third_trial_changes_one_setting_of_the_method(method):
    changed = changed_strength(settings(method))
    if method in ("natural", "madry"):
        assert changed == {}
        return
    ((part, values),) = changed.items()
    ((name, value),) = values.items()
    published = settings(method).methods[part][name]
    assert value != published
    assert settings(method, methods=changed).methods[part][name] == value


def test_the_strength_of_nbc_is_three_times_as_large():
    assert changed_strength(settings("nbc", beta=1.0)) == {"nbc": {"beta": 3.0}}
    assert changed_strength(settings("rs+nbc", beta=2.0)) == {"nbc": {"beta": 6.0}}
    assert changed_strength(settings("sabr", methods={"sabr": {"box": 0.6}})) == {"sabr": {"box": 1.0}}


def test_what_is_found_is_written_into_the_grid(tmp_path, monkeypatch, capsys):
    before, mark, _ = method_tables.GRID.read_text().partition(MARK)
    assert mark
    grid = tmp_path / "methods.toml"
    grid.write_text(before + MARK)
    monkeypatch.setattr(method_tables, "GRID", grid)
    trial = Trial("M1@0.3", "rs+nbc", 5e-4, {"nbc": {"beta": 3.0}}, 0.9, 0.5, 50, 0.7)
    tuned = with_choice(MethodSettings({"epochs": 7, "warmup": 3.5}), trial)
    show({("M1@0.3", "rs+nbc"): tuned}, write=True)
    show({("M1@0.1", "natural"): MethodSettings({"epochs": 17})}, write=True)
    assert "written" in capsys.readouterr().out
    assert read_settings() == {
        ("M1@0.1", "natural"): MethodSettings({"epochs": 17}),
        ("M1@0.3", "rs+nbc"): MethodSettings({"epochs": 7, "warmup": 3.5, "lr": 5e-4}, {"nbc": {"beta": 3.0}}),
    }
    assert as_toml(read_settings()) in grid.read_text()
    cells = cells_of(read_grid(str(grid), "laptop"), [0], {"model": ["M1@0.3"], "method": ["rs+nbc"]})
    (found,) = [resolve(cell.settings) for cell in cells]
    assert (found.total_epochs, found.warmup, found.lr, found.methods["nbc"]["beta"]) == (7, 3.5, 5e-4, 3.0)


def test_the_grid_in_the_package_has_settings_for_every_method():
    grid = read_grid("methods", "laptop")
    places = {(model, method) for model in grid.models for method in grid.methods}
    assert set(read_settings()) == places
    written = read_toml(method_tables.GRID)["scales"]["laptop"]["models"]
    assert all("epochs" in table["training"] for model in written.values() for table in model["methods"].values())
