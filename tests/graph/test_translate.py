"""Networks become graphs that compute the same, live; or they are refused, with the operation and the layer named."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import IMAGE, Written, convolutional, dense, residual, same, shaken, some_images
from steadynet.bounds import UnsupportedNetworkError, graph_of
from steadynet.graph.operations import ReLU


def written(forward, *, layers: int = 2, **others: nn.Module) -> Written:
    """A network on 4 features with Linear(4, 4) layers a, b, …"""
    torch.manual_seed(0)
    return Written(forward, **{name: nn.Linear(4, 4) for name in "abc"[:layers]}, **others)


def agrees(network: nn.Module, shape: tuple[int, ...]) -> None:
    images = some_images(7, shape, seed=5) * 4 - 2
    graph = graph_of(network, shape)
    with torch.no_grad():
        same([graph.values(images.clone())[-1]], [network.eval()(images.clone())])


def relu_chain(net, x):
    h = net.a(x)
    net.relu(h)
    return h


def kept_input(net, x):
    h = net.a(x)
    return net.relu(h) + h


def kept_alias(net, x):
    h = net.a(x)
    other = net.same(h)
    return net.relu(h) + other


def kept_clone(net, x):
    h = net.a(x)
    other = h.clone()
    return net.relu(h) + other


def added_in_place(net, x):
    h = net.a(x)
    other = h
    h += net.b(x)
    return h - other + net.relu(other)


def subtracted_in_place(net, x):
    h = net.a(x)
    other = h
    h -= net.b(x)
    return h + other


def scaled_in_place(net, x):
    h = net.a(x)
    other = h
    h *= 2
    h /= -3
    return h + other


def changed_only_far_away(net, x):
    h = net.a(x)
    other = h
    h += F.relu(net.b(x) - 1e3)  # nothing near the points that a translation could try
    return other


IN_PLACE = {"relu": nn.ReLU(inplace=True), "same": nn.Identity()}
ON_FEATURES = {
    "relu in place, old name returned": written(relu_chain, **IN_PLACE),
    "relu in place, old name used": written(kept_input, **IN_PLACE),
    "relu in place, alias used": written(kept_alias, **IN_PLACE),
    "relu in place, clone kept": written(kept_clone, **IN_PLACE),
    "addition in place": written(added_in_place, **IN_PLACE),
    "subtraction in place": written(subtracted_in_place, **IN_PLACE),
    "products in place": written(scaled_in_place),
    "functions": written(lambda net, x: torch.relu(net.a(x)).relu() + F.relu(net.b(x), inplace=True).relu_()),
    "leaky relu": written(lambda net, x: F.leaky_relu(net.a(x), 0.3) - net.act(net.b(x)), act=nn.LeakyReLU(0.2)),
    "numbers": written(lambda net, x: (2 - net.a(x) * 3 + 1) / -4 - 5 + 0.5 * net.b(x)),
    "methods": written(lambda net, x: net.a(x).add(1).sub(net.b(x)).mul(2).div(4)),
    "torch arithmetic": written(
        lambda net, x: torch.div(torch.mul(torch.sub(torch.add(net.a(x), 1), net.b(x)), -2), 4)
    ),
    "parameters": written(lambda net, x: net.a(x) * net.b.bias - net.c.bias, layers=3),
    "a batch axis of one": written(lambda net, x: x - net.table.weight, table=nn.Embedding(1, 4)),
    "tensors made on the way": written(lambda net, x: net.a(x) + torch.arange(4) * torch.tensor([1.0, -1, 2, -2])),
    "a mask of booleans": written(lambda net, x: net.a(x) * torch.tensor([True, False, True, True])),
    "the input itself": written(lambda net, x: x),
    "the same twice": written(lambda net, x: net.a(x) + net.a(x) - net.a(net.a(x).relu()).relu()),
    "a branch that is not used": written(lambda net, x: [net.a(x), net.b(x).relu()][0]),
    "dropout": written(lambda net, x: F.dropout(net.drop(net.a(x)), 0.5, net.training), drop=nn.Dropout()),
    "reshapes": written(lambda net, x: net.a(x).view(x.size(0), 2, -1).reshape(x.shape[0], 4).unsqueeze(1).squeeze(1)),
    "reshaping modules": written(
        lambda net, x: net.flat(net.two(net.a(x))), two=nn.Unflatten(1, (2, 2)), flat=nn.Flatten()
    ),
    "concatenation": written(lambda net, x: torch.cat((net.a(x), x, net.b(x).relu()), dim=1)),
    "concatenation by keyword": written(lambda net, x: torch.concat(tensors=[net.a(x), x], dim=-1)),
    "dense on the last of several axes": written(
        lambda net, x: net.a(torch.cat([x, -1 * x], 1).view(-1, 2, 4)).flatten(1)
    ),
    "batch norm of features": shaken(written(lambda net, x: net.norm(net.a(x)).relu(), norm=nn.BatchNorm1d(4))),
    "batch norm without affine": shaken(written(lambda net, x: net.n(x), n=nn.BatchNorm1d(4, affine=False))),
    "batch norm of sequences": shaken(
        written(lambda net, x: net.norm(net.a(x).view(-1, 2, 2)).flatten(1), norm=nn.BatchNorm1d(2))
    ),
    "ReLU6": written(lambda net, x: F.relu6(net.b(net.act(9 * net.a(x)))), act=nn.ReLU6()),
    "sigmoid": written(lambda net, x: F.sigmoid(net.b(net.act(net.a(x)))).sigmoid_(), act=nn.Sigmoid()),
    "tanh": written(lambda net, x: torch.tanh(net.b(F.tanh(net.act(net.a(x)).tanh()))), act=nn.Tanh()),
    "logistic": written(lambda net, x: torch.special.expit(net.a(x).sigmoid()) + torch.sigmoid(x).tanh_()),
    "hard tanh": written(lambda net, x: F.hardtanh(net.b(net.act(x)), -0.2, 0.3), act=nn.Hardtanh(-0.5, 0.25)),
    "clamp": written(lambda net, x: torch.clamp(net.a(x), -0.1, 0.4) + net.b(x).clip(max=0.2) - x.clamp(min=-0.3)),
    "clamp on one side": written(lambda net, x: net.a(x).clamp_min(0.1) + torch.clamp_max(input=net.b(x), max=0)),
    "clamp in place": written(lambda net, x: net.b(net.a(x).clamp_(-0.1, 0.4))),
    "clamp, crossed": written(lambda net, x: net.a(x).clamp(0.5, -0.5)),
    "evaluation mode decides": written(lambda net, x: net.a(x) * 2 if net.training else net.a(x).relu()),
}
IMAGES = {
    "convolutional": convolutional(),
    "residual": residual(),
    "residual in place": residual(inplace=True),
    "same padding": nn.Sequential(nn.Conv2d(1, 2, (3, 5), padding="same", dilation=(1, 2))),
    "valid padding": nn.Sequential(nn.Conv2d(1, 2, 3, padding="valid")),
    "pooling": nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 1, 1, count_include_pad=False)),
    "pooling to one": nn.Sequential(nn.Conv2d(1, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "pooling functions": Written(
        lambda net, x: F.avg_pool2d(F.max_pool2d(x, 2, stride=1, padding=1), 3, ceil_mode=True)
    ),
    "pooling by the size": Written(lambda net, x: F.avg_pool2d(x, x.size()[2:]).view(x.size(0), -1)),
    "torch.flatten": Written(lambda net, x: torch.flatten(x, 1) + torch.flatten(x, start_dim=1)),
    "zeros around": nn.Sequential(nn.ZeroPad2d((0, 1, 2, 3)), nn.Conv2d(1, 2, 3, stride=2)),
    "channels last and back": Written(lambda net, x: net.c(x).permute(0, 2, 3, 1).flatten(1), c=nn.Conv2d(1, 3, 3)),
    "transpositions": Written(
        lambda net, x: torch.permute(net.c(x).transpose(1, -1), dims=(0, 2, 3, 1)).swapaxes(1, 2), c=nn.Conv2d(1, 3, 3)
    ),
    "no parameters": Written(lambda net, x: (x - 0.5) * torch.full((1, 1, 6, 1), -2.0)),
}


@pytest.mark.parametrize("name", ON_FEATURES)
def test_graph_of_features_computes_what_the_network_does(name):
    agrees(ON_FEATURES[name].train(), (4,))


@pytest.mark.parametrize("name", IMAGES)
def test_graph_of_images_computes_what_the_network_does(name):
    agrees(IMAGES[name].train(), IMAGE)


def viewed_then_changed(net, x):
    h = net.a(x)
    net.relu(h.view(-1, 2, 2))
    return h


REFUSED = {
    "softplus (layer 'softplus')": written(lambda net, x: F.softplus(net.a(x))),
    "GELU (layer 'act')": written(lambda net, x: net.act(net.a(x)), act=nn.GELU()),
    "neg (layer 'neg')": written(lambda net, x: -x),
    "a product or quotient of data (layer 'mul')": written(lambda net, x: net.a(x) * x),
    "a constant divided by data (layer 'truediv')": written(lambda net, x: 1 / x),
    "chunk (layer 'chunk')": written(lambda net, x: net.a(x).chunk(2, 1)[0]),
    "getattr (layer 'getattr_1')": written(lambda net, x: net.a(x).T),
    "cat with something that is not data (layer 'cat')": written(lambda net, x: torch.cat([x, net.b.weight[:2]], 1)),
    "a concatenation along the batch axis (layer 'cat')": written(lambda net, x: torch.cat([x, x])),
    "a reshape that touches the batch axis (layer 'view')": written(lambda net, x: x.view(-1, 2)),
    "a reshape that touches the batch axis (layer 'flatten')": written(lambda net, x: x.flatten()),
    "arithmetic that broadcasts data (layer 'add')": written(lambda net, x: x + x.unsqueeze(1)),
    "arithmetic that broadcasts data (layer 'sub')": written(lambda net, x: x.unsqueeze(1) - torch.ones(1, 3, 4)),
    "arithmetic that broadcasts data (layer 'add_1')": written(lambda net, x: x + 1 + torch.ones(1, 1, 4)),
    "neither data nor a constant (layer 'mul')": written(lambda net, x: x * x.size(1)),
    "neither data nor a constant (layer 'add')": written(lambda net, x: x + net.b(net.b.bias)),
    "add with options (layer 'add')": written(lambda net, x: torch.add(x, x, alpha=2)),
    "div with options (layer 'div')": written(lambda net, x: torch.div(x, 2, rounding_mode="floor")),
    "dropout (layer 'dropout')": written(lambda net, x: F.dropout(x, 1e-9)),
    "slope -0.5": written(lambda net, x: F.leaky_relu(net.a(x), -0.5)),
    "slope 2.0, which is not between 0 and 1 (layer 'act')": written(lambda net, x: net.act(x), act=nn.LeakyReLU(2.0)),
    "which is used again": written(viewed_then_changed, relu=nn.ReLU(inplace=True)),
    "must return one tensor": written(lambda net, x: (net.a(x), net.b(x))),
    "must return one tensor made from its input": written(lambda net, x: net.a.weight),
    "branches on data": written(lambda net, x: net.a(x) if x.sum() > 0 else net.b(x)),
    "read wrongly": written(lambda net, x: net.a(x) if isinstance(x, Tensor) else net.b(x)),
    "when it is run again on the same images": written(lambda net, x: x + torch.rand(4)),
    "changes the images that it is given": written(lambda net, x: net.a(F.relu_(x) + x)),
    "clamp of something that is not data (layer 'clamp')": written(lambda net, x: torch.clamp(net.a.bias, min=x)),
}
REFUSED_IMAGES = {
    "a transposition that moves the batch axis (layer 'permute')": Written(lambda net, x: x.permute(1, 0, 2, 3)),
    "ZeroPad2d by (-1, 0, 0, 0)": nn.Sequential(nn.ZeroPad2d((-1, 0, 0, 0))),
    "clipping to something that is not a number (layer 'clamp')": Written(lambda net, x: x.clamp(torch.zeros(6))),
    "Conv2d with padding_mode='circular' (layer '0')": nn.Sequential(nn.Conv2d(1, 1, 3, padding_mode="circular")),
    "padding='same' and an even kernel (layer '0')": nn.Sequential(nn.Conv2d(1, 1, 2, padding="same")),
    "without running statistics (layer '0')": nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False)),
    "AdaptiveAvgPool2d of (1, 6, 6) to (2, 2)": nn.Sequential(nn.AdaptiveAvgPool2d((2, 2))),
    "average pooling with a negative divisor (layer '0')": nn.Sequential(nn.AvgPool2d(2, divisor_override=-4)),
    "shape (1, 6, 6)": dense(4, 4, 4),
    "more than one input": type("Two", (nn.Module,), {"forward": lambda self, x, factor=2.0: x * factor})(),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_bounds_is_refused_by_name(message):
    with pytest.raises(UnsupportedNetworkError) as caught:
        graph_of(REFUSED[message], (4,))
    assert message in str(caught.value)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("message", REFUSED_IMAGES)
def test_what_has_no_bounds_on_images_is_refused_by_name(message):
    with pytest.raises(UnsupportedNetworkError) as caught:
        graph_of(REFUSED_IMAGES[message], IMAGE)
    assert message in str(caught.value)


def test_a_batch_taken_for_channels_is_refused():
    network = Written(lambda net, x: net.a(x.squeeze(1)).unsqueeze(1), a=nn.Conv2d(2, 2, 1))
    with pytest.raises(UnsupportedNetworkError, match="batch of 3"):
        graph_of(network, IMAGE)


def test_a_change_in_place_is_seen_even_where_examples_do_not_show_it():
    network = written(changed_only_far_away)
    far = torch.full((1, 4), 1e4)
    with torch.no_grad():
        assert not network(far).equal(network.a(far))
        same([graph_of(network, (4,)).values(far)[-1]], [network(far)])


@pytest.mark.parametrize("where", ["network", "layer"])
@pytest.mark.parametrize("how", ["hook", "pre-hook", "forward"])
def test_hooks_and_replaced_forwards_are_refused(where, how):
    network = dense(4, 4, 4)
    module = network if where == "network" else network[0]
    if how == "hook":
        module.register_forward_hook(lambda module, inputs, output: None)
    elif how == "pre-hook":
        module.register_forward_pre_hook(lambda module, inputs: None)
    else:
        module.forward = module.forward
    with pytest.raises(UnsupportedNetworkError, match="hooks or a replaced forward"):
        graph_of(network, (4,))


def test_a_network_that_changes_is_read_again():
    network = written(lambda net, x: net.a(x) * net.factor)
    for network.factor in (2.0, -3.0):
        agrees(network, (4,))
    network.register_buffer("spread", torch.tensor(2.0))
    network.written = lambda net, x: net.a(x) * (1 / net.spread)
    agrees(network, (4,))
    network.spread.fill_(7)
    agrees(network, (4,))
    layers = dense(4, 5, 4)
    agrees(layers, (4,))
    layers.append(nn.ReLU())
    agrees(layers, (4,))


def test_weights_are_live_after_an_optimiser_step():
    network = residual().train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    for _ in range(2):
        optimiser.zero_grad()
        network(some_images()).square().mean().backward()
        optimiser.step()
        agrees(network.train(), IMAGE)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_graph_that_is_kept_has_the_weights_of_its_network_and_no_copies(layout):
    """Training keeps a graph for many steps."""
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    network(some_images())
    network.to(memory_format=layout)
    graph = graph_of(network, IMAGE)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.5)
    torch.testing.assert_close(graph.values(some_images())[-1], network(some_images()))


def test_translation_leaves_the_network_as_it_was():
    network = written(lambda net, x: net.norm(net.a(x)) + torch.ones(4), norm=nn.BatchNorm1d(4)).train()
    network.a.eval()
    before, attributes = {k: v.clone() for k, v in network.state_dict().items()}, set(vars(network))
    modes = [module.training for module in network.modules()]
    with torch.inference_mode():
        graph_of(network, (4,))
    assert [module.training for module in network.modules()] == modes
    assert set(vars(network)) == attributes
    assert all(value.equal(before[key]) for key, value in network.state_dict().items())


def test_random_numbers_are_not_drawn():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    graph_of(ON_FEATURES["numbers"], (4,))
    assert torch.get_rng_state().equal(state)


def test_relus_come_in_the_order_of_the_network_and_layers_have_their_names():
    graph = graph_of(residual(), IMAGE)
    assert [node.name for node in graph.nodes if isinstance(node.operation, ReLU)] == ["relu", "relu"]
    assert [graph.producer(position).name for position in graph.relus] == ["relu", "relu"]
    assert [node.name for node in graph.nodes][:3] == ["first", "norm", "relu"]
