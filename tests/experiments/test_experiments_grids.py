"""Grids: those of the paper are as the paper says, one has every method, and mistakes in a user's own are explained."""

from __future__ import annotations

import dataclasses

import pytest

from grids import write_grid
from steadynet import objectives
from steadynet.errors import UserError
from steadynet.experiments.cells import cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import names, read_grid
from steadynet.experiments.paper_numbers import PAPER, paper_numbers
from steadynet.experiments.plan import make_plan
from steadynet.experiments.provenance import Made
from steadynet.experiments.strength_search import AccuracyWindow
from steadynet.experiments.variants import Variant
from steadynet.training.settings import resolve

TEN = [
    "beta",
    "gamma",
    "rq1-cifar10",
    "rq1-fashion-mnist",
    "rq1-mnist",
    "rq2-cifar10",
    "rq2-fashion-mnist",
    "rq2-mnist",
    "rq3-cifar10",
    "sabr",
]


def test_there_are_ten_each_with_the_papers_numbers():
    assert names() == sorted([*TEN, "methods"])
    assert sorted(path.name.removesuffix(".csv") for path in PAPER.iterdir()) == TEN
    assert sum(len(paper_numbers(name)) for name in TEN) == 2 * 192 + 252 + 2 * 288 + 378 + 168 + 36 + 30 + 24


@pytest.mark.parametrize("name", TEN)
def test_every_number_of_the_paper_has_its_place(name):
    cells = cells_of(read_grid(name, "paper"), [0])
    metrics = ["unsat_percent", "n_unsat", "stable_percent", "time_s", "time_unsat_timeout_s"]
    places = set()
    for cell in cells:
        ends = ["", "_delta"] if cell.against else [""]
        key = cell.variant.key
        places |= {(cell.model, key, None, f"test_acc_percent{end}") for end in ends}
        attacks = [f"pgd{steps}_percent" for steps in cell.evaluation.attacks]
        places |= {
            (cell.model, key, eps, metric + end) for eps in cell.radii for metric in metrics + attacks for end in ends
        }
    printed = {(of.model, of.variant.key, of.eps, of.metric) for of in paper_numbers(name)}
    assert len(printed) == len(paper_numbers(name))
    assert printed <= places
    if name.startswith("rq1"):
        wanted = {place for place in places if place[3] != "n_unsat"}
        left_out = wanted - printed
        assert not left_out


@pytest.mark.parametrize("name", TEN)
@pytest.mark.parametrize("scale", ["paper", "laptop", "smoke"])
def test_every_scale_gives_trainings(name, scale):
    cells = cells_of(read_grid(name, scale), [0])
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        settings = resolve(cell.settings)
        assert settings.total_epochs <= {"paper": 400, "laptop": 40, "smoke": 2}[scale]
        assert cell.verification_plan([]).timeout <= {"paper": 180, "laptop": 20, "smoke": 2}[scale]
        assert (settings.data == "digits") == (scale == "smoke")


def test_the_papers_settings():
    cells = {(cell.model, cell.variant.label): cell for cell in cells_of(read_grid("rq2-cifar10", "paper"), [0])}
    assert cells["C2", "rs+nbc"].settings["phases"] == "rs:200 rs+nbc:200"
    assert cells["C2", "madry+nbc"].settings["phases"] == "madry+nbc:200 madry:200"
    assert cells["C2", "trades+nbc"].settings["phases"] == "trades+nbc:400"
    settings = resolve(cells["C2", "trades+nbc"].settings)
    assert settings.methods["nbc"]["beta"] == 5
    assert settings.methods["trades"]["trades_weight"] == 6
    assert (settings.eps, settings.lr, settings.batch_size) == (8 / 255, 1e-5, 128)
    assert cells["C2", "rs"].radii == (2 / 255, 4 / 255, 6 / 255, 8 / 255)
    gamma = {cell.variant.label: cell for cell in cells_of(read_grid("gamma", "paper"), [0]) if cell.model == "M1"}
    assert resolve(gamma["gamma=rank-size"].settings).methods["nbc"]["gamma"] == "rank-size"
    assert resolve(gamma["gamma=one"].settings).lr == 1e-4


def test_the_same_run_has_one_name_in_two_experiments():
    def keys(name):
        return {(cell.model, cell.variant.label): cell.key for cell in cells_of(read_grid(name, "paper"), [0])}

    assert keys("rq1-mnist")["M1", "rs"] == keys("rq2-mnist")["M1", "rs"]


def test_only_and_seeds(tmp_path):
    grid = read_grid(str(write_grid(tmp_path)))
    assert len(cells_of(grid, [0, 1, 2])) == 18
    chosen = cells_of(grid, [0, 1], {"model": ["tiny"], "method": ["natural", "tuned"]})
    assert [(cell.variant.label, cell.seed) for cell in chosen] == [
        ("natural", 0),
        ("natural", 1),
        ("tuned", 0),
        ("tuned", 1),
    ]
    assert chosen[3].init.key == chosen[1].key
    with pytest.raises(UserError, match="unknown method 'natrual': did you mean 'natural'"):
        cells_of(grid, [0], {"method": ["natrual"]})
    with pytest.raises(UserError, match="unknown kind of cell 'modle': did you mean 'model'"):
        cells_of(grid, [0], {"modle": ["tiny"]})


def test_one_network_twice_with_different_settings(tmp_path):
    twice = f'[models.far]\nnetwork = "{tmp_path}/net.py:tiny"\ntraining.eps = 0.2\n\n[models.tiny]'
    grid = read_grid(str(write_grid(tmp_path, ("[models.tiny]", twice))))
    cells = cells_of(grid, [0], {"method": ["natural"]})
    assert [(cell.model, cell.settings["model"].partition(":")[2], cell.settings["eps"]) for cell in cells] == [
        ("far", "tiny", 0.2),
        ("tiny", "tiny", 0.1),
        ("fragile", "fragile", 0.1),
    ]


def test_a_model_may_have_its_own_seeds(tmp_path):
    def seeds(*changes, given=None, only=None):
        grid = read_grid(str(write_grid(tmp_path, *changes)))
        return [(cell.model, cell.seed) for cell in cells_of(grid, given, {"method": ["natural"], **(only or {})})]

    of_tiny = ("[models.tiny]", "[models.tiny]\nseeds = [3, 5]")
    assert seeds() == [("tiny", 0), ("fragile", 0)]
    assert seeds(of_tiny) == [("tiny", 3), ("tiny", 5), ("fragile", 0)]
    assert seeds(of_tiny, ("[training]", "seeds = [1, 2]\n[training]")) == [
        ("tiny", 3),
        ("tiny", 5),
        ("fragile", 1),
        ("fragile", 2),
    ]
    assert seeds(of_tiny, given=[4]) == [("tiny", 4), ("fragile", 4)], "given seeds count for all models"
    assert seeds(of_tiny, only={"seed": ["5"]}) == [("tiny", 5)]
    with pytest.raises(UserError, match="unknown seed '1'"):
        seeds(of_tiny, only={"seed": ["1"]})


def test_what_a_model_says_of_a_method_counts_most(tmp_path):
    of_both = "[models.tiny]\nmethods.natural.training.lr = 0.03\nmethods.natural.verification.timeout = 7.0"
    of_method = "[methods.natural]\ntraining.lr = 0.02"
    path = write_grid(tmp_path, ("[models.tiny]", of_both), ("[methods.natural]", of_method))
    cells = {(cell.model, cell.variant.label): cell for cell in cells_of(read_grid(str(path)))}
    rates = {place: cell.settings["lr"] for place, cell in cells.items()}
    assert rates["tiny", "natural"] == 0.03
    assert rates["fragile", "natural"] == 0.02
    assert rates["tiny", "madry+nbc"] == 0.01
    assert cells["tiny", "natural"].verification_plan([]).timeout == 7
    assert cells["fragile", "natural"].verification_plan([]).timeout == 20


def test_every_method_has_its_place_in_the_grid_of_all_methods():
    grid = read_grid("methods", "laptop")
    trained = {part for method in grid.methods for part in objectives.parts_of(method)}
    assert trained == set(objectives.available())
    alone = {name for name in objectives.available() if name not in ("awp", "bias-shaping", "stable-pruning")}
    assert alone <= set(grid.methods)
    cells = cells_of(grid)
    assert len({cell.key for cell in cells}) == len(cells) == len(grid.methods) * (3 + 3 + 1)
    settings = [(cell, resolve(cell.settings)) for cell in cells]
    assert {(cell.model, one.model, one.data, one.eps) for cell, one in settings} == {
        ("M1@0.1", "M1", "mnist", 0.1),
        ("M1@0.3", "M1", "mnist", 0.3),
        ("C1@2/255", "C1", "cifar10", 2 / 255),
    }
    for cell, one in settings:
        assert cell.radii == (one.eps,)
        assert (cell.evaluation.attacks, cell.evaluation.images) == ((40,), 1000)
        assert (cell.verification.per_class, cell.verification_plan([]).timeout) == (5, 5)
        assert {part["search"] for part in one.methods.values() if "search" in part} <= {"fast"}
    for scale in ("paper", "smoke"):
        for cell in cells_of(read_grid("methods", scale)):
            assert (resolve(cell.settings).data == "digits") == (scale == "smoke")


def test_a_changed_setting_is_another_run_but_where_it_is_trained_is_not(tmp_path):
    def key(*changes):
        return cells_of(read_grid(str(write_grid(tmp_path, *changes))), [0])[0].key

    assert key() != key(("lr = 0.01", "lr = 0.02"))
    assert key() == key(("lr = 0.01", 'lr = 0.01\ndevice = "cpu"'))
    assert key() == key(("timeout = 20.0", "timeout = 30.0"))


@pytest.mark.parametrize("name", ["small.npz", "net.py"])
def test_a_run_belongs_to_what_the_users_files_hold(tmp_path, name):
    path = write_grid(tmp_path)
    grid = read_grid(str(path))
    (before, *_) = cells_of(grid, [0])
    own = tmp_path / name
    own.write_bytes(own.read_bytes() + b"#")
    assert cells_of(grid, [0])[0].key != before.key
    own.unlink()  # as on another machine, with what was recorded then
    assert cells_of(dataclasses.replace(grid, files=before.files), [0])[0].key == before.key


def test_what_each_kind_of_task_asks_for(tmp_path):
    resources = "[resources]\ncpus = 4\n[resources.verify]\ncpus = 2\ngpus = 0.5\n\n[models.tiny]"
    grid = read_grid(str(write_grid(tmp_path, ("[models.tiny]", resources))))
    plan = make_plan(ExperimentDirectory(tmp_path / "out"), cells_of(grid, [0], {"method": ["natural"]}))
    found = {(task.kind, task.cpus, task.gpus, getattr(task.job, "device", None)) for task in plan.tasks.values()}
    assert found == {("train", 4, 0, None), ("evaluate", 4, 0, "cpu"), ("verify", 2, 0.5, "auto")}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[methods.natural]", "[method.natural]", r"unknown key of .*grid.toml 'method': did you mean 'methods'"),
        ("per_class = 3", "per_clas = 3", r"unknown key of .*\[verification\] 'per_clas': did you mean 'per_class'"),
        ("batch_size", "batchsize", r"unknown key of .*\[training\] 'batchsize': did you mean 'batch_size'"),
        ("pgd_steps", "pgd_step", r"\[evaluation\] 'pgd_step': did you mean 'pgd_steps'"),
        ("drop = [-100, 100]", "dorp = [1, 2]", r"\[methods.tuned\] 'dorp': did you mean 'drop'"),
        ("drop = [-100, 100]", "drop = 3", "drop is two numbers"),
        ("nbc = { steps = 2 }", "nbc = { gama = 2 }", "unknown setting of nbc 'gama': did you mean 'gamma'"),
        ("nbc = { steps = 2 }", "ncb = { steps = 2 }", "'ncb': did you mean 'nbc'"),
        ('against = "natural"', 'against = "nature"', "'nature': did you mean 'natural'"),
        ('init = "natural"', 'init = "tuned"', "which itself starts from another"),
        ("network =", "netwrok =", r"\[models.tiny\] 'netwrok': did you mean 'network'"),
        ("eps = 0.1", "seed = 3", "seeds = \\[0, 1, 2\\]; or they are given as --seeds"),
        ("[scales.quick]", "[scales.quick]\nmodel = 3", r"\[scales.quick\] 'model': did you mean 'models'"),
        ("epochs = 2", 'epochs = "2"', "epochs"),
        ("timeout = 20.0", "timeout = 0", "timeout = 0 must be larger than 0"),
        ("[models.tiny]", "[resources.verfy]\n[models.tiny]", r"\[resources\] 'verfy': did you mean 'verify'"),
        ("[models.tiny]", "[resources.train]\ncpu = 1\n[models.tiny]", r"train\] 'cpu': did you mean 'cpus'"),
        ("[models.tiny]", "[resources]\ncpus = 0.5\n[models.tiny]", "cpus = 0.5 must be a whole number"),
        ("[models.tiny]", "[resources]\ngpus = 1.5\n[models.tiny]", "gpus = 1.5 must be .* or a share of one"),
        ("shard = 6", "shard = 0", r"\[verification\]: shard = 0 must be a whole number above 0"),
        ("madry+nbc:1/2 madry:1/2", "madry+nbc:x madry:1", "are not METHOD:SHARE"),
        ("madry+nbc:1/2 madry:1/2", "madry+nbc:1/2 madry:1/6", "'madry.nbc:1/2 madry:1/6' add up to 2/3, not to 1"),
        ("eps = [0.05, 0.3]", "eps = []", r"\[verification\]: eps = \[\] names no radius"),
        ("lr = 0.01", "beta = 2.0", r"\[training\]: beta is a setting of a part of a method: parts.nbc.beta = …"),
        ("[methods.natural]", "[methods.natural]\nbeta = 2.0", r"\[methods.natural\]: beta is a setting of a part"),
        ("drop = [-100, 100]", "drop = [2, 1]", r"\[methods.tuned\]: target drop 2 to 1: the first must be less"),
        ("drop = [-100, 100]", "drop = [[1, 2], [1, 2]]", "two methods are called tuned@1-2"),
        ("[methods.natural]", "[methods.natural]\nsweep.nbc.beta = ['x']", "nbc.beta = 'x' must be a number"),
        ("[methods.natural]", "[methods.natural]\nsweep.nbc.beta = 1.0", "sweep.nbc.beta = 1.0 must be a list"),
        (
            "[models.tiny]",
            "[models.tiny]\nseeds = []",
            r"\[models.tiny\]: seeds = \[\] must be different whole numbers",
        ),
        ("[models.tiny]", "[models.tiny]\nseeds = [1, 1]", r"seeds = \[1, 1\] must be different whole numbers"),
        ("[training]", "seeds = [-1]\n[training]", r"grid.toml: seeds = \[-1\] must be different whole numbers"),
        (
            "[models.tiny]",
            "[models.tiny]\nmethods.nature = {}",
            r"\[models.tiny.methods\] 'nature': did you mean 'natural'",
        ),
        (
            "[models.tiny]",
            "[models.tiny]\nmethods.natural.trainign = {}",
            r"\[models.tiny\] \[methods.natural\] 'trainign': did you mean 'training'",
        ),
        (
            "[models.tiny]",
            "[models.tiny]\nmethods.natural.training.epoch = 1",
            r"\[models.tiny.methods.natural\] \[training\] 'epoch': did you mean 'epochs'",
        ),
        ("[training]", "training = 3\n[models.tiny.training]", "training = 3 must be a table"),
        ("net.py:tiny", "nett.py:tiny", r"tiny by natural: there is no file .*nett.py \(a path in a grid is relative"),
    ],
)
def test_what_is_wrong_is_said_with_the_nearest_right_word(tmp_path, old, new, complaint):
    path = write_grid(tmp_path, (old, new))
    with pytest.raises(UserError, match=complaint):
        cells_of(read_grid(str(path)), [0])


def test_a_sweep_is_one_method_per_value(tmp_path):
    sweep = '[methods.natural]\n[methods.nbc]\nsweep.nbc.beta = [0.0, 2.5]\nsweep.nbc.gamma = ["one", "rank-size"]\n'
    grid = read_grid(str(write_grid(tmp_path, ("[methods.natural]", sweep))))
    labels = ["beta=0 gamma=one", "beta=0 gamma=rank-size", "beta=2.5 gamma=one", "beta=2.5 gamma=rank-size"]
    assert list(grid.methods)[1:5] == labels
    cells = {cell.variant.label: cell for cell in cells_of(grid, [0], {"model": ["tiny"], "method": labels})}
    assert cells[labels[3]].variant == Variant(labels[3], "nbc", {"beta": 2.5, "gamma": "rank-size"})
    assert cells[labels[3]].settings["methods"]["nbc"] == {"steps": 2, "beta": 2.5, "gamma": "rank-size"}


def test_runs_of_earlier_versions_keep_their_names(tmp_path):
    def key(steps: str) -> str:
        grid = read_grid(str(write_grid(tmp_path, ("nbc = { steps = 2 }", f"nbc = {{ {steps} }}"))))
        (cell,) = cells_of(grid, [0], {"model": ["tiny"], "method": ["nbc"]})[:1]
        return cell.key

    assert key("steps = 2") == key('steps = 2, search = "paper"')
    assert key("steps = 2") != key('search = "fast"')


@pytest.mark.parametrize("name", TEN)
def test_the_laptop_scale_searches_fast_and_the_paper_does_not(name):
    for scale, search in (("laptop", "fast"), ("paper", "paper")):
        for cell in cells_of(read_grid(name, scale), [0]):
            parts = resolve(cell.settings).methods.values()
            assert {part["search"] for part in parts if "search" in part} <= {search}


def test_a_method_stands_for_all_its_variants(tmp_path):
    grid = read_grid(str(write_grid(tmp_path, ("drop = [-100, 100]", "drop = [[1, 2], [6, 7]]"))))
    cells = cells_of(grid, [0], {"model": ["tiny"], "method": ["nbc"]})
    assert [cell.variant.label for cell in cells] == ["tuned@1-2", "tuned@6-7"]
    assert {cell.variant.method for cell in cells} == {"nbc"}
    assert [cell.variant.window for cell in cells] == [AccuracyWindow(1, 2), AccuracyWindow(6, 7)]


def test_two_sweeps_have_the_names_of_their_methods(tmp_path):
    sweeps = "".join(f"[methods.{name}]\nsweep.{name}.steps = [1, 2]\n" for name in ("nbc", "madry"))
    grid = read_grid(str(write_grid(tmp_path, ("[methods.natural]", f"[methods.natural]\n{sweeps}"))))
    assert list(grid.methods)[1:5] == ["nbc steps=1", "nbc steps=2", "madry steps=1", "madry steps=2"]


def test_grids_of_earlier_versions_name_their_methods_as_labels(tmp_path):
    earlier = """
        [methods."nbc@1-2"]
        phases = "nbc"
        init = "natural"
        drop = [1, 2]
        [methods."beta=3"]
        phases = "nbc"
        parts.nbc.beta = 3.0
        [methods."rs+nbc"]
        phases = "rs:1/2 rs+nbc:1/2"
        [methods.natural]"""
    path = write_grid(tmp_path, ("[methods.natural]", earlier), ("per_class = 3", "tasks = 7\nper_class = 3"))
    grid = read_grid(str(path))
    assert grid.variants["nbc@1-2"] == Variant("nbc@1-2", "nbc", {}, AccuracyWindow(1, 2))
    assert grid.variants["beta=3"] == Variant("beta=3", "nbc", {"beta": 3.0})
    assert grid.variants["rs+nbc"] == Variant.plain("rs+nbc")
    assert {cell.verification.properties for cell in cells_of(grid, [0])} == {7}


def test_unknown_names():
    with pytest.raises(UserError, match="unknown experiment 'rq1-mnits': did you mean 'rq1-mnist'"):
        read_grid("rq1-mnits")
    with pytest.raises(UserError, match="is neither an experiment of steadynet nor a"):
        read_grid("mine.tom")
    with pytest.raises(UserError, match="unknown scale of beta 'labtop': did you mean 'laptop'"):
        read_grid("beta", "labtop")


def test_an_unknown_shared_scale(tmp_path):
    path = write_grid(tmp_path, ("[scales.quick]", '[scales.quick]\nbase = "smok"'))
    with pytest.raises(UserError, match="unknown shared scale 'smok': did you mean 'smoke'"):
        read_grid(str(path), "quick")


def test_a_scale_may_be_based_on_a_shared_one(tmp_path):
    path = write_grid(tmp_path, ("[scales.quick]", '[scales.quick]\nbase = "smoke"'))
    cell = cells_of(read_grid(str(path), "quick"), [0])[0]
    assert (cell.data, cell.evaluation.attacks) == ("digits", (5,)), "as the shared scale says"
    assert cell.verification_plan([]).timeout == 0.2
    assert cell.settings["phases"] == "natural:1", "the grid's own scale is laid over the shared one"


def test_a_scale_may_be_based_on_a_file_of_the_user(tmp_path):
    shared = tmp_path / "mine.toml"
    shared.write_text(
        "[training]\nlr = 0.5\n[models.tiny.training]\nbatch_size = 9\n[models.other.training]\nlr = 0.1\n"
    )
    path = write_grid(tmp_path, ("[scales.quick]", f'[scales.quick]\nbase = "{shared}"'))
    cells = cells_of(read_grid(str(path), "quick"), [0], {"method": ["natural"]})
    assert [(cell.settings["lr"], cell.settings["batch_size"]) for cell in cells] == [(0.5, 9), (0.5, 32)]
    shared.write_text("[trainign]\nlr = 0.5\n")
    with pytest.raises(UserError, match=r"the scale that .* is based on 'trainign': did you mean 'training'"):
        read_grid(str(path), "quick")


def test_a_grid_as_an_experiment_wrote_it_is_a_grid(tmp_path):
    own = "[models.tiny]\nseeds = [0, 1]\nmethods.natural.training.lr = 0.03"
    grid = read_grid(
        str(write_grid(tmp_path, ("[models.tiny]", own), ("[training]", "seeds = [2]\n[training]"))), "quick"
    )
    (tmp_path / "written.toml").write_text(grid.to_toml(Made(scale="quick")))
    again = read_grid(str(tmp_path / "written.toml"))
    assert again.scale == "quick"
    assert [cell.key for cell in cells_of(again)] == [cell.key for cell in cells_of(grid)]
