"""The paper's networks by their published counts, and networks of one's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from helpers import Written, dense
from steadynet.errors import UserError
from steadynet.networks import ARCHITECTURES, Normalise, build, check_classifies, custom_source
from steadynet.networks.preactivations import activations

PARAMETERS = {"M1": 166_406, "M2": 171_158, "M3": 1_974_762, "C1": 165_498, "C2": 338_346, "C3": 2_466_858}
RELUS = {"M1": 4_804, "M2": 4_804, "M3": 48_064, "C1": 4_944, "C3": 62_464}
FEATURES = {"M1": 1568, "M2": 1568, "M3": 3136, "C1": 1152, "C2": 2304, "C3": 4096}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_the_papers(name):
    network = ARCHITECTURES[name].build()
    assert sum(parameter.numel() for parameter in network.parameters()) == PARAMETERS[name]
    assert next(layer.in_features for layer in network if isinstance(layer, nn.Linear)) == FEATURES[name]


@pytest.mark.parametrize("name", RELUS)
def test_relu_counts(name):
    network, images = ARCHITECTURES[name].build(), torch.zeros(1, *ARCHITECTURES[name].image_shape)
    assert sum(layer.numel() for layer in activations(network, images).preactivations) == RELUS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_relu_follows_every_layer_but_the_last(name):
    kinds = [type(layer) for layer in ARCHITECTURES[name].build() if not isinstance(layer, nn.Flatten)]
    assert kinds[1::2] == [nn.ReLU] * (len(kinds) // 2)
    assert set(kinds[::2]) == {nn.Conv2d, nn.Linear}


@pytest.mark.parametrize("name", PARAMETERS)
def test_other_images_and_classes(name):
    network = build(name, (2, 20, 24), 7)
    assert network(torch.zeros(3, 2, 20, 24)).shape == (3, 7)


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        ("M7", (1, 28, 28), "unknown model 'M7'"),
        ("C1", (3, 5, 5), "5×5 pixels are too small"),
        ("M1", (784,), "needs images (channels, height, width)"),
        ("net.py", (1, 28, 28), "names no factory"),
        ("nowhere.py:make", (1, 28, 28), "no file nowhere.py"),
    ],
)
def test_models_that_cannot_be_built(model, shape, message):
    with pytest.raises(UserError) as caught:
        build(model, shape, 10)
    assert message in str(caught.value)


def test_normalise_by_hand():
    images = torch.tensor([0.5, 0.75]).view(1, 2, 1, 1).expand(3, 2, 4, 4)
    found = Normalise([0.25, 0.75], [0.5, 0.1])(images)
    assert found[:, 0].unique().tolist() == [0.5]
    assert found[:, 1].unique().tolist() == [0.0]
    assert list(Normalise([0.0], [1.0]).parameters()) == []


FACTORIES = """
from torch import nn

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 3))

def sized(image_shape, classes, width=5):
    features = image_shape[1] * image_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes))

def greedy(image_shape, depth):
    return nn.Identity()

def wrong():
    return "a network"
"""


@pytest.fixture
def factories(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(FACTORIES)
    return file


@pytest.mark.parametrize("factory", ["plain", "sized"])
def test_a_factory_may_take_the_shape_and_the_classes_or_nothing(factories, factory):
    assert build(f"{factories}:{factory}", (1, 2, 4), 3)(torch.zeros(5, 1, 2, 4)).shape == (5, 3)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("palin", "did you mean 'plain'"),
        ("greedy", "own.py:greedy wants depth"),
        ("wrong", "own.py:wrong returned str, not an nn.Module"),
    ],
)
def test_factories_that_do_not_fit(factories, factory, message):
    with pytest.raises(UserError) as caught:
        build(f"{factories}:{factory}", (1, 2, 4), 3)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["def broken(:", "import no_such_module", "x = undefined"])
def test_a_file_that_cannot_be_imported(tmp_path, text):
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(UserError, match=r"own.py cannot be imported"):
        build(f"{file}:make", (1, 2, 4), 3)


@pytest.mark.parametrize(
    ("model", "expected"), [("M1", None), ("a/b.py:make", ("a/b.py", "make")), ("b.py", None), ("a:b", None)]
)
def test_custom_sources(model, expected):
    found = custom_source(model)
    assert (found and (str(found[0]), found[1])) == expected


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (dense(4, 3, 2), "output has shape (2,), but the data has 3 classes"),
        (dense(5, 4, 3), "cannot take images of shape (4,)"),
        (Written(lambda net, x: (x[:, :3], x)), "output has shape tuple"),
        (Written(lambda net, x: x.sum()), "output has shape ()"),
        (Written(lambda net, x: x[:1, :3]), "but the data has 3 classes"),
    ],
)
def test_networks_that_do_not_classify(network, message):
    with pytest.raises(UserError) as caught:
        check_classifies(network, (4,), 3)
    assert message in str(caught.value)


@pytest.mark.parametrize("training", [True, False])
def test_checking_changes_nothing(training):
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).train(training)
    assert check_classifies(network, (4,), 3) is network
    assert network.training is network[1].training is training
    assert network[1].num_batches_tracked == 0
