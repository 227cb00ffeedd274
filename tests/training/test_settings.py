"""Settings: from flags or a file, checked, completed, written down and read back."""

from __future__ import annotations

import math

import pytest

from runs import files, same_weights, tiny, write_inputs
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.files import read_toml
from steadynet.training.given_settings import GivenSettings, read_settings
from steadynet.training.notation import Phase, parse_phases, parse_radius
from steadynet.training.settings import TrainingSettings, resolve


def test_the_recipe_paper_is_the_papers():
    settings = resolve({"recipe": "paper"})
    assert (settings.method, settings.eps, settings.batch_size, settings.lr) == ("nbc", 0.3, 128, 1e-4)
    assert settings.methods["nbc"] == {
        "search": "paper",
        "steps": 10,
        "step_size": None,
        "clip": True,
        "beta": 1.0,
        "gamma": "rank-power",
        "step": "sign",
    }
    assert settings.schedule == "constant"
    assert resolve({"data": "cifar10", "recipe": "paper"}).lr == 1e-5


@pytest.mark.parametrize(
    ("values", "expected"),  # learning rate, schedule, warm-up
    [
        ({}, (4e-3, "one-cycle", 0)),
        ({"epochs": 199}, (4e-3, "one-cycle", 0)),
        ({"epochs": 200}, (1e-4, "constant", 0)),
        ({"model": "mine.py:small"}, (2e-3, "one-cycle", 0)),
        ({"model": "M3"}, (5e-4, "one-cycle", 0)),
        ({"data": "cifar10"}, (1e-3, "one-cycle", 0)),
        ({"data": "cifar10", "model": "C3"}, (5e-4, "one-cycle", 0)),
        ({"method": "madry"}, (4e-3, "one-cycle", 10)),  # ε rises, or it may learn nothing
        ({"method": "trades+nbc", "epochs": 4}, (4e-3, "one-cycle", 2)),
        ({"method": "rs"}, (4e-3, "one-cycle", 10)),
        ({"method": "madry", "warmup": 3.0}, (4e-3, "one-cycle", 3)),
        ({"method": "madry", "recipe": "paper"}, (1e-4, "constant", 0)),
        ({"method": "madry", "init": "runs/first"}, (1.2e-3, "one-cycle", 0)),
        ({"phases": "natural:100 madry:100"}, (1e-4, "constant", 0)),
        # what is given counts, and a given rate is as constant as it always was
        ({"lr": 1e-3}, (1e-3, "constant", 0)),
        ({"method": "madry", "lr": 1e-3, "schedule": "one-cycle"}, (1e-3, "one-cycle", 0)),
        ({"schedule": "one-cycle"}, (4e-3, "one-cycle", 0)),
        ({"schedule": "constant"}, (1e-4, "constant", 0)),
        # certified methods have a rule of their own
        ({"method": "ibp", "epochs": 70}, (5e-4, "drops", 20)),
    ],
)
def test_the_recipe_suits_the_data_the_method_and_the_epochs(values, expected):
    settings = resolve(values)
    assert (pytest.approx(settings.lr), settings.schedule, settings.warmup) == expected


def test_the_recipe_is_not_written_down_but_what_it_chose_is():
    for recipe in ("auto", "paper"):
        config = resolve({"recipe": recipe}).as_config()
        assert "recipe" not in config
        assert resolve(config).as_config() == config
    assert config["lr"] == 1e-4  # also by the recipe auto, which reads a run's own configuration


def test_phases_replace_method_and_epochs():
    assert resolve({"phases": "rs:200 rs+nbc:2"}).plan == [Phase("rs", 200), Phase("rs+nbc", 2)]
    assert resolve({"method": "rs", "epochs": 7}).plan == [Phase("rs", 7)]
    assert set(resolve({"phases": "rs:2 trades+nbc:2"}).methods) == {"rs", "trades", "nbc"}


@pytest.mark.parametrize("text", ["", "rs", "rs:", ":3", "rs:0", "rs:-1", "rs:1.5", "rs 3", "rs:3 nbc", "rsx:3"])
def test_phases_that_say_nothing(text):
    with pytest.raises(UserError):
        resolve({"phases": text})


def test_phases_may_be_spaced_freely():
    assert parse_phases("  rs:1\n nbc:2 ") == [Phase("rs", 1), Phase("nbc", 2)]


@pytest.mark.parametrize(("text", "value"), [("8/255", 8 / 255), ("0.3", 0.3), (" 1e-2 ", 0.01), (1, 1.0), ("1", 1.0)])
def test_radii(text, value):
    assert parse_radius(text) == value


@pytest.mark.parametrize(
    "text", ["0", "-0.1", "0/3", "1/0", "nan", "inf", "abc", "0,3", "", "8 / 255", math.nan, math.inf, -1, None, [0.1]]
)
def test_radii_that_are_none(text):
    with pytest.raises(UserError, match=r"^eps = "):
        parse_radius(text)


@pytest.mark.parametrize("text", ["8", 8, "1.01", "300"])
def test_a_radius_in_grey_levels_is_explained(text):
    with pytest.raises(UserError, match=r"too large: pixel values lie in \[0, 1\], so write 8/255 for 8 grey levels"):
        parse_radius(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"epoch": 3}, "unknown setting 'epoch': did you mean 'epochs'?"),
        ({"betta": 3.0}, "unknown setting 'betta': did you mean 'beta'?"),
        ({"method": "trads"}, "unknown method 'trads': did you mean 'trades'?"),
        ({"phases": "natural:1 nbcc:1"}, "unknown method 'nbcc': did you mean 'nbc'?"),
        ({"method": "natural", "beta": 2.0}, "beta is a setting of nbc, which method 'natural' does not use"),
        ({"methods": {"nbc": {"betta": 2.0}}}, "unknown setting of nbc 'betta': did you mean 'beta'?"),
        ({"methods": {"trades": {}}}, "unknown part of the method in [methods] 'trades': there are natural, nbc"),
        ({"methods": {"nbc": {"beta": "x"}}}, "nbc.beta = 'x' must be a number"),
        ({"methods": {"nbc": 3}}, "methods holds a table for each method: [methods.nbc]"),
        ({"methods": 3}, "methods holds a table for each method: [methods.nbc]"),
        ({"method": "trades+madry"}, "only regularisers can join another method"),
        ({"method": "nbc+nbc"}, "names a part twice"),
        ({"method": ""}, "method '' is empty: write nbc, or trades+nbc"),
        ({"phases": "rs:1", "method": "rs"}, "give phases, or method and epochs"),
        ({"epochs": "three"}, "epochs = 'three' must be a whole number"),
        ({"epochs": True}, "epochs = True must be a whole number"),
        ({"normalise": "yes"}, "normalise = 'yes' must be true or false"),
        ({"epochs": 0}, "epochs = 0 must be 1 or more"),
        ({"batch_size": 0}, "batch_size = 0 must be 1 or more"),
        ({"lr": 0.0}, "lr = 0.0 must be larger than 0"),
        ({"lr": math.nan}, "lr = nan must be larger than 0"),
        ({"warmup": -1.0}, "warmup = -1.0 must be 0 or more"),
        ({"validation": 1.0}, "validation = 1.0 must be a share between 0 and 1"),
        ({"seed": -1}, "seed = -1 must be 0 or more"),
        ({"threads": 0}, "threads = 0 must be 1 or more"),
        ({"steps": -1}, "steps = -1: an attack takes 0 or more steps"),
    ],
)
def test_what_is_wrong_is_said(values, said):
    with pytest.raises(UserError) as caught:
        resolve(values)
    assert said in str(caught.value)


def test_a_flat_setting_is_for_every_part_and_a_table_for_one():
    both = resolve({"method": "trades+nbc", "steps": 3}).methods
    assert (both["trades"]["steps"], both["nbc"]["steps"]) == (3, 3)
    one = resolve({"method": "trades+nbc", "steps": 3, "methods": {"nbc": {"steps": 5}}}).methods
    assert (one["trades"]["steps"], one["nbc"]["steps"]) == (3, 5)


@pytest.mark.parametrize(
    ("data", "eps", "part", "key", "value"),
    [
        ("digits", "0.3", "trades", "trades_weight", 1.0),
        ("mnist", "0.3", "trades", "trades_weight", 1.0),
        ("cifar10", "8/255", "trades", "trades_weight", 6.0),
        ("mnist", "0.1", "rs", "rs_weight", 1.2e-4),
        ("mnist", "0.2", "rs", "rs_weight", 1e-4),
        ("mnist", "0.3", "rs", "rs_weight", 1.2e-4),
    ],
)
def test_published_settings(data, eps, part, key, value):
    assert resolve({"data": data, "eps": eps, "method": part}).methods[part][key] == value
    assert resolve({"data": data, "eps": eps, "method": part, key: 9.0}).methods[part][key] == 9.0


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"data": "cifar10", "eps": "8/255", "method": "trades+nbc", "beta": 2.0, "step_size": 0.01},
        {"method": "madry+nbc", "search": "fast", "l1_weight": 1e-5, "methods": {"madry": {"search": (1.0, 0.5)}}},
        {"phases": "rs:2 nbc:1", "gamma": (1.0, 2.0, 4.0), "threads": 2, "normalise": True, "init": "runs/a"},
    ],
)
def test_a_configuration_reads_back_as_itself(values, tmp_path):
    from steadynet.files import write_toml

    settings = resolve(values)
    write_toml(tmp_path / "config.toml", settings.as_config() | {"input": {"classes": 10}})
    assert resolve(read_toml(tmp_path / "config.toml")) == settings


def merge(file, flags):
    return GivenSettings.parse(file).overridden_by(GivenSettings(flags))


def test_flags_win_over_a_file():
    file = resolve({"method": "trades+nbc", "beta": 2.0}).as_config()
    changed = resolve(merge(file, {"beta": 5.0, "seed": 3}))
    assert changed.methods["nbc"]["beta"] == 5.0
    assert (changed.seed, changed.method) == (3, "trades+nbc")
    assert set(resolve(merge(file, {"method": "natural"})).methods) == {"natural"}
    assert resolve(merge(file, {"phases": "rs:1 nbc:2"})).plan == [Phase("rs", 1), Phase("nbc", 2)]
    assert resolve(merge({"phases": "rs:1"}, {"method": "nbc"})).plan == [Phase("nbc", 20)]


def test_a_configuration_of_an_earlier_version_has_the_search_of_the_paper():
    old = resolve({"method": "nbc"}).as_config()
    del old["methods"]["nbc"]["search"]
    assert resolve(old) == resolve({"method": "nbc"})
    assert resolve(merge(old, {"search": "fast"})) == resolve({"method": "nbc", "search": "fast"})


def test_the_search_of_the_paper_is_one_switch_away_from_a_fast_one():
    fast = resolve({"method": "nbc", "search": "fast"}).as_config()
    assert "steps" not in fast["methods"]["nbc"]
    assert resolve(merge(fast, {"search": "paper"})) == resolve({"method": "nbc"})


def test_the_tables_of_one_file_win_over_those_of_another():
    file = GivenSettings.parse({"method": "trades+nbc", "methods": {"nbc": {"beta": 2.0, "steps": 3}}})
    both = resolve(file.overridden_by(GivenSettings({"step_size": 0.1}, {"nbc": {"beta": 5.0}}))).methods
    assert (both["nbc"]["beta"], both["nbc"]["steps"], both["trades"]["steps"]) == (5.0, 3, 10)
    assert both["nbc"]["step_size"] == both["trades"]["step_size"] == 0.1


def test_a_file_is_read_into_a_record(tmp_path):
    (tmp_path / "given.toml").write_text("seed = 3\n[methods.nbc]\nbeta = 2.0\n[input]\nclasses = 10\n")
    assert read_settings(tmp_path / "given.toml") == GivenSettings({"seed": 3}, {"nbc": {"beta": 2.0}})
    (tmp_path / "given.toml").write_text("methods = 3")
    with pytest.raises(UserError, match=r"methods holds a table for each method"):
        read_settings(tmp_path / "given.toml")


def test_settings_made_in_python_are_checked_too():
    with pytest.raises(UserError, match=r"eps = 2 must be larger than 0 and at most 1"):
        TrainingSettings(eps=2)


def test_a_runs_configuration_trains_the_same(tmp_path):
    write_inputs(tmp_path)
    first, second = tmp_path / "first", tmp_path / "second"
    flags = tiny(tmp_path, method="trades+nbc", eps="8/255", beta=0.5, warmup=1, gamma="2", schedule="one-cycle")
    assert main(["train", *flags, "--normalise", "--out", str(first)]) == 0
    assert main(["train", "--config", str(first / "config.toml"), "--out", str(second)]) == 0
    assert same_weights(first, second)
    assert files(first)["config.toml"] == files(second)["config.toml"]
