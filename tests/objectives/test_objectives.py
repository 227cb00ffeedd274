"""Every training method keeps one contract; each agrees with a plain reference written here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import convolutional, gradients, residual, same, some_images, some_labels
from steadynet import NBC, train
from steadynet.errors import UserError
from steadynet.networks.preactivations import Activations, activations
from steadynet.objectives import Batch, Combination, available, build, parts_of
from steadynet.training.settings import resolve

NAMES = sorted(available())
METHODS = NAMES + [f"{name}+nbc" for name in NAMES if not available()[name].is_regulariser]
NETWORKS = {"convolutional": convolutional, "residual": residual}
EPS = 0.2

every_method = pytest.mark.parametrize("method", METHODS)
every_network = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


def terms_of(
    method: str, network: nn.Module, radius: float = EPS, seed: int = 0, **settings: object
) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    objective = build(
        method, {name: {k: v for k, v in settings.items() if k in fields(name)} for name in parts_of(method)}
    )
    return objective.terms(Batch(network, some_images(), some_labels(), radius))


def fields(name: str) -> set[str]:
    return set(available()[name].__dataclass_fields__)


@every_method
@every_network
def test_terms_are_named_finite_numbers_that_train_every_parameter(method, make):
    network = make().train()
    terms = terms_of(method, network)
    assert terms
    assert all(name.isidentifier() and term.shape == () and term.isfinite() for name, term in terms.items())
    for parameter, gradient in zip(network.parameters(), gradients(sum(terms.values()), network), strict=True):
        assert gradient.shape == parameter.shape
        assert gradient.isfinite().all()
        assert gradient.any()


@every_method
def test_a_call_is_the_sum_of_the_terms(method):
    network, objective = convolutional(), build(method)
    terms = terms_of(method, network)
    torch.manual_seed(0)
    same([objective(network, some_images(), some_labels(), EPS)], [sum(terms.values())])


@every_method
@every_network
def test_the_same_seed_gives_the_same_terms(method, make):
    one, other = (terms_of(method, make().train()) for _ in range(2))
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)


@every_method
def test_a_tiny_radius_gives_the_clean_loss(method):
    network = convolutional()
    terms = terms_of(method, network, radius=1e-6, rs_weight=0.0, l1_weight=0.0)
    best = 1 / 4 + 1 / 2  # two layers of different size, each with cosine 1
    clean = F.cross_entropy(network(some_images()), some_labels())
    expected = (clean**2 if "taps" in method else clean) - best * ("nbc" in method)  # taps multiplies two losses
    assert sum(terms.values()).item() == pytest.approx(expected.item(), abs=1e-3)


@every_method
def test_only_the_passes_of_the_loss_touch_running_statistics(method):
    network, quiet = residual().train(), residual().train()
    terms_of(method, network, steps=5)
    terms_of(method, quiet, steps=0)
    passes = network.norm.num_batches_tracked.item()
    assert passes == quiet.norm.num_batches_tracked.item()
    assert passes <= 3  # the image, the attacked image, the neighbour
    frozen = residual().eval()
    before = [buffer.clone() for buffer in frozen.buffers()]
    terms_of(method, frozen)
    same(list(frozen.buffers()), before, rtol=0, atol=0)


@every_method
def test_modes_are_given_back(method):
    network = residual().train()
    network.norm.eval()
    before = [module.training for module in network.modules()]
    terms_of(method, network)
    assert [module.training for module in network.modules()] == before


@every_method
@pytest.mark.parametrize("clip", [True, False])
def test_the_network_sees_only_points_of_the_region(method, clip):
    images, seen = some_images(), []

    class Watched(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if isinstance(x, Tensor) and len(x) == len(images):
                seen.append(x.detach().clone())
            return super().forward(x)

    terms_of(method, Watched(*convolutional()), steps=7, step_size=0.15, clip=clip, kappa_end=0.5)
    assert seen or method == "taps"  # which computes its graph alone
    for points in seen:
        assert (points - images).abs().max() <= EPS + 1e-6
        assert not clip or (points.min() >= 0 and points.max() <= 1)


@every_method
def test_labels_are_asked_for(method):
    with pytest.raises(UserError, match="needs labels"):
        build(method)(convolutional(), some_images(), radius=EPS)


def plain_pgd(network: nn.Module, images: Tensor, start: Tensor, loss, steps: int = 10) -> Tensor:
    """The point that ``steps`` sign steps of ε/10 up the loss reach, in plain PyTorch."""
    points = start
    for _ in range(steps):
        points = points.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(network(points)), points)
        points = points + EPS / 10 * gradient.sign()
        points = torch.clamp(torch.min(torch.max(points, images - EPS), images + EPS), 0, 1)
    return points.detach()


def uniform_start(images: Tensor) -> Tensor:
    low, high = (images - EPS).clamp(0, 1), (images + EPS).clamp(0, 1)
    return low + (high - low) * torch.rand_like(images)


def plain_madry(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    training = network.training
    network.eval()
    points = plain_pgd(network, images, uniform_start(images), lambda logits: F.cross_entropy(logits, labels))
    return F.cross_entropy(network.train(training)(points), labels)


def plain_trades(network: nn.Module, images: Tensor, labels: Tensor, weight: float = 6.0) -> Tensor:
    def divergence(moved: Tensor, clean: Tensor) -> Tensor:
        return F.kl_div(moved.log_softmax(1), clean.softmax(1), reduction="batchmean")

    training = network.training
    network.eval()
    clean = network(images).detach()
    start = (images + 0.001 * torch.randn_like(images)).clamp(0, 1)
    points = plain_pgd(network, images, start, lambda logits: divergence(logits, clean))
    network.train(training)
    logits = network(images)
    return F.cross_entropy(logits, labels) + weight * divergence(network(points), logits)


def plain_rs(network: nn.Sequential, images: Tensor, labels: Tensor) -> Tensor:
    low, high = (images - EPS).clamp(0, 1), (images + EPS).clamp(0, 1)
    instability = torch.zeros(())
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            options = {"stride": layer.stride, "padding": layer.padding}
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            low, high = (
                F.conv2d(low, plus, layer.bias, **options) + F.conv2d(high, minus, **options),
                F.conv2d(high, plus, layer.bias, **options) + F.conv2d(low, minus, **options),
            )
        elif isinstance(layer, nn.ReLU):
            instability = instability - torch.tanh(1 + low * high).sum(1).mean()
            low, high = low.relu(), high.relu()
    weights = sum(layer.weight.abs().sum() for layer in network if hasattr(layer, "weight"))
    return plain_madry(network, images, labels) + 1.2e-4 * instability + 2e-5 * weights


def plain_nbc(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    gamma = [4, 2] if isinstance(network, nn.Sequential) else [2, 2]  # layers of 27 and 18 ReLUs, or twice 27

    def consistency(clean: Activations, moved: Activations) -> Tensor:
        layers = zip(clean.preactivations, moved.preactivations, gamma, strict=True)
        cosines = sum(F.cosine_similarity(v.flatten(1), w.flatten(1)).mean() / weight for v, w, weight in layers)
        return cosines - F.kl_div(moved.logits.log_softmax(1), clean.logits.softmax(1), reduction="batchmean")

    training, clean = network.training, activations(network, images)
    fixed = activations(network.eval(), images)
    points = plain_pgd(
        lambda x: activations(network, x), images, uniform_start(images), lambda x: -consistency(fixed, x)
    )
    moved = activations(network.train(training), points)
    return F.cross_entropy(clean.logits, labels) - consistency(clean, moved)


@pytest.mark.parametrize(
    ("method", "make", "reference"),
    [
        ("natural", convolutional, lambda network, images, labels: F.cross_entropy(network(images), labels)),
        ("madry", convolutional, plain_madry),
        ("madry", residual, plain_madry),
        ("trades", convolutional, plain_trades),
        ("trades", residual, plain_trades),
        ("rs", convolutional, plain_rs),
        ("nbc", convolutional, plain_nbc),
        ("nbc", residual, plain_nbc),
    ],
)
def test_values_and_gradients_of_the_plain_reference(method, make, reference):
    found = []
    for loss in (lambda *batch: build(method)(*batch, EPS), reference):
        network = make().double().train()  # in single precision, rounding decides the sign of small gradients
        torch.manual_seed(3)
        value = loss(network, some_images().double(), some_labels())
        found.append([value, *gradients(value, network)])
    same(*found)


def test_rs_without_clipping_bounds_the_whole_box():
    network, images = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)), torch.tensor([[-3.0]])
    network[0].weight.data.fill_(1.0), network[0].bias.data.fill_(2.0)  # the relu sees [−2, 0] at radius 1
    objective = build("rs", {"rs": {"clip": False, "rs_weight": 1.0}})
    terms = objective.terms(Batch(network, images, torch.tensor([0]), 1.0))
    assert terms["instability"].item() == pytest.approx(-torch.tensor(1.0).tanh().item())


@pytest.mark.parametrize(
    ("name", "data", "eps", "expected"),
    [
        ("rs", "cifar10", 2 / 255, {"rs_weight": 1e-3}),
        ("rs", "cifar10", 8 / 255, {"rs_weight": 2e-3}),
        ("rs", "mnist", 0.2, {"rs_weight": 1e-4}),
        ("rs", "mnist", 0.3, {}),
        ("trades", "mnist", 0.3, {"trades_weight": 1.0}),
        ("trades", "cifar10", 8 / 255, {}),
        ("madry", "mnist", 0.3, {}),
    ],
)
def test_published_settings(name, data, eps, expected):
    assert available()[name].published(data, eps) == expected


@pytest.mark.parametrize(
    ("data", "eps", "given", "expected"),
    [
        ("cifar10", "8/255", {}, 1.2e-4),
        ("cifar10", "2/255", {}, 1.2e-4),
        ("cifar10", "2/255", {"rs_weight": "published"}, 1e-3),
        ("cifar10", "8/255", {"rs_weight": "published"}, 2e-3),
        ("cifar10", "8/255", {"rs_weight": 2e-3}, 2e-3),  # as in a run of an earlier version
        ("mnist", "0.2", {}, 1e-4),
        ("mnist", "0.2", {"rs_weight": "published"}, 1e-4),
        ("mnist", "0.3", {"rs_weight": "published"}, 1.2e-4),
        ("digits", "0.3", {"rs_weight": "published"}, 1.2e-4),
    ],
)
def test_the_weight_of_rs_is_a_number_in_the_end(data, eps, given, expected):
    settings = resolve({"data": data, "eps": eps, "method": "rs", **given})
    assert settings.methods["rs"]["rs_weight"] == expected
    assert resolve(settings.as_config()).methods == settings.methods


def test_the_published_weight_needs_a_data_set():
    with pytest.raises(UserError, match="give the number"):
        build("rs", {"rs": {"rs_weight": "published"}})


def test_nbc_is_the_natural_loss_and_the_term():
    network, images, labels = convolutional(), some_images(), some_labels()
    terms = terms_of("nbc", network)
    assert list(terms) == ["cross_entropy", "consistency"]
    torch.manual_seed(0)
    three_lines = F.cross_entropy(network(images), labels) + NBC(eps=EPS, beta=1.0)(network, images)
    same([sum(terms.values())], [three_lines])
    same(gradients(sum(terms.values()), network), gradients(three_lines, network))


def test_nbc_alone_compares_two_passes_of_the_same_mode():
    network = residual().train()
    best = NBC(eps=1e-7, gamma="one")(network, some_images())
    assert best.item() == pytest.approx(-2, abs=1e-3)
    assert network.norm.num_batches_tracked == 2


@pytest.mark.parametrize("main", [name for name in NAMES if not available()[name].is_regulariser])
def test_joining_nbc_adds_its_term_and_keeps_the_others(main):
    network = convolutional()
    joined, alone = terms_of(f"{main}+nbc", network), terms_of(main, network)
    assert set(joined) == {*alone, "consistency"}
    for name, term in alone.items():
        same([joined[name]], [term])


def test_beta_scales_and_gamma_weighs():
    network = convolutional()
    once, thrice = (terms_of("nbc", network, beta=beta)["consistency"] for beta in (1.0, 3.0))
    same([3 * once], [thrice])
    flat = terms_of("nbc", network, radius=1e-7, gamma="one")["consistency"]
    assert flat.item() == pytest.approx(-2, abs=1e-4)
    with pytest.raises(UserError, match="gamma has 1 numbers"):
        terms_of("nbc", network, gamma=(1.0,))


def test_the_attack_makes_the_network_less_consistent():
    network = convolutional()
    idle, attacked = (terms_of("nbc", network, steps=steps)["consistency"] for steps in (0, 10))
    assert attacked > idle


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("natural", ["natural"]),
        ("nbc", ["natural", "nbc"]),
        ("nbc+natural", ["natural", "nbc"]),
        ("trades + nbc", ["trades", "nbc"]),
    ],
)
def test_parts(method, parts):
    assert parts_of(method) == parts
    objective = build(method)
    assert [part.name for part in (objective.parts if isinstance(objective, Combination) else [objective])] == parts


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("madri", "unknown method 'madri': did you mean 'madry'"),
        ("", "method '' is empty: write nbc"),
        ("madry+", "method 'madry+' has nothing before or after a"),
        ("madry+trades", "joins madry and trades"),
        ("nbc+nbc", "names a part twice"),
    ],
)
def test_parts_that_do_not_fit(method, message):
    with pytest.raises(UserError) as caught:
        build(method)
    assert message in str(caught.value)


@pytest.mark.parametrize("method", ["madry", "trades", "rs", "nbc"])
@pytest.mark.parametrize(
    ("settings", "length"),
    [({}, 0.03), ({"steps": 20}, 0.03), ({"steps": 4}, 0.075), ({"steps": 0}, 0.3), ({"step_size": 0.01}, 0.01)],
)
def test_steps_are_a_tenth_of_the_radius_or_as_long_as_they_must_be(method, settings, length):
    steps = settings.get("steps", 10)
    assert available()[method](**settings).schedule(0.3).lengths == pytest.approx([length] * steps)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"betta": 2.0}, "did you mean 'beta'"),
        ({"beta": "big"}, "must be a number"),
        ({"gamma": "two"}, "nbc.gamma = 'two'"),
        ({"steps": -1}, "0 or more steps"),
        ({"step_size": 0.0}, "larger than 0"),
        ({"search": "quick"}, "nbc.search = 'quick' must be paper, fast or a list of numbers"),
        ({"search": (1.0, 0.0)}, "each larger than 0"),
        ({"search": "fast", "steps": 5}, "steps = 5 is for search 'paper': leave out steps, or leave out search"),
        ({"search": (1.0,), "step_size": 0.1}, "step_size = 0.1 is for search 'paper'"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(UserError) as caught:
        build("nbc", {"nbc": settings})
    assert message in str(caught.value)


def test_a_radius_is_needed_once():
    with pytest.raises(UserError, match="NBC needs a radius"):
        NBC()(convolutional(), some_images())


def test_pixels_are_expected_unless_clipping_is_off():
    normalised = some_images() * 4 - 2
    with pytest.raises(UserError, match="clip=False"):
        NBC(eps=EPS)(convolutional(), normalised)
    assert NBC(eps=EPS, clip=False)(convolutional(), normalised).isfinite()


@pytest.mark.parametrize(
    "given",
    [
        {"gamma": "rank_power"}, {"gamma": (0.0, 1.0)}, {"step": "sgn"}, {"beta": -1.0}, {"clip": "no"}, {"steps": 2.5},
        {"search": "fst"}, {"eps": "8/255"}, {"eps": float("nan")}, {"eps": -0.1}, {"eps": 8},
    ],
)  # fmt: skip
def test_nbc_in_your_own_loop_refuses_settings_that_mean_nothing(given):
    with pytest.raises(UserError, match=next(iter(given))):
        NBC(**given)


def test_normalised_images_may_have_any_radius():
    assert NBC(eps=2, clip=False).eps == 2


def test_a_radius_may_be_a_number_of_numpy():
    assert NBC(eps=np.float32(0.5)).eps == 0.5


def test_a_training_is_told_that_it_got_no_settings(tmp_path):
    with pytest.raises(UserError, match=r"resolve\(\{...\}\)"):
        train({"data": "digits"}, tmp_path / "run")
