"""Networks: their published parameter counts, shapes that the papers print, and what a wrong graph is told."""

import pytest

from experiments.paradl.record.work import flop
from gpusim.common.errors import InputError
from gpusim.training.networks.layers import Addition, Concatenation, ConvolutionLayer, Linear, Pooling, ReLU, Shape
from gpusim.training.networks.network import INPUT, Builder, Network, Node
from gpusim.training.networks.zoo import INCEPTION, NETWORKS, network

PARAMETERS = {  # as the reference implementations report them; auxiliary classifiers left out
    "alexnet": 61_100_840,
    "densenet121": 7_978_856,
    "googlenet": 6_998_552,
    "inception_v3": 23_834_568,
    "resnet50": 25_557_032,
    "squeezenet": 1_235_496,
    "vgg16": 138_357_544,
}
GIGA_MULTIPLY_ADDS = {"alexnet": 0.71, "resnet50": 4.09, "vgg16": 15.47, "densenet121": 2.83, "inception_v3": 5.71}


def test_every_network_is_checked():
    assert set(PARAMETERS) == set(NETWORKS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name):
    net = network(name)
    assert sum(node.layer.parameters(net.inputs(node)) for node in net.nodes) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_thousand_classes_come_out(name):
    net = network(name)
    assert net.shapes[net.nodes[-1].name] == Shape(1000, 1, 1)


@pytest.mark.parametrize("name", GIGA_MULTIPLY_ADDS)
def test_multiply_adds_of_convolutions_and_classifiers_are_the_published_ones(name):
    net = network(name)
    layers = [node for node in net.nodes if isinstance(node.layer, ConvolutionLayer | Linear)]
    work = sum(flop(node.layer, net.inputs(node)) for node in layers) / 2e9
    assert work == pytest.approx(GIGA_MULTIPLY_ADDS[name], abs=0.006)


def test_googlenet_has_the_shapes_of_its_table():
    shapes = network("googlenet").shapes
    assert shapes["pool2"] == Shape(192, 28, 28)
    outputs = {name: shapes[f"{name}.concat"] for name in INCEPTION}
    assert [s.channels for s in outputs.values()] == [256, 480, 512, 512, 512, 528, 832, 832, 1024]
    assert [s.height for s in outputs.values()] == [28, 28, 14, 14, 14, 14, 14, 7, 7]


def test_branches_of_a_module_read_the_same_tensor():
    reads = {node.name: node.inputs for node in network("googlenet").nodes}
    branches = ("3b.1x1", "3b.3x3_reduce", "3b.5x5_reduce", "3b.pool")
    assert {reads[branch] for branch in branches} == {("3a.concat",)}


def test_a_window_that_begins_beyond_the_data_is_none():
    assert Pooling("max", (3, 3), 2, ceil=True).output([Shape(1, 112, 112)]) == Shape(1, 56, 56)
    assert Pooling("max", (3, 3), 2, ceil=False).output([Shape(1, 112, 112)]) == Shape(1, 55, 55)
    assert Pooling("max", (1, 1), 2, ceil=True).output([Shape(1, 4, 4)]) == Shape(1, 2, 2)


def test_work_and_parameters_of_one_convolution():
    layer = ConvolutionLayer(8, (3, 1), stride=2, padding=(1, 0))
    assert layer.output([Shape(4, 6, 5)]) == Shape(8, 3, 3)
    assert layer.parameters([Shape(4, 6, 5)]) == 8 * (4 * 3 + 1)
    assert flop(layer, [Shape(4, 6, 5)]) == 2 * 8 * 9 * 4 * 3


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("a", ReLU(), ("b",))], "layer a: reads 'b'; expected layers before it"),
        ([Node("a", ReLU(), ())], "layer a: reads nothing; expected layers before it"),
        (
            [Node("a", ReLU(), (INPUT,)), Node("a", ReLU(), ("a",))],
            "layer a: is there twice; expected one layer of a name",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_refused(nodes, message):
    with pytest.raises(InputError) as error:
        Network("net", Shape(1, 1, 1), tuple(nodes))
    assert str(error.value) == message


def test_a_shape_that_a_layer_cannot_take_is_told_with_its_place():
    net = Builder("net", Shape(1, 4, 4))
    net.add("small", ConvolutionLayer(1, (3, 3)))
    net.add("both", Addition(), "small", INPUT)
    with pytest.raises(InputError) as error:
        _ = net.network().shapes
    assert str(error.value) == "net: layer both: of 1x2x2, 1x4x4; expected tensors of one shape"


def test_tensors_of_other_sizes_are_not_joined():
    with pytest.raises(InputError, match="expected tensors of one height and width"):
        Concatenation().output([Shape(1, 2, 2), Shape(1, 2, 3)])
    with pytest.raises(InputError, match="expected one that fits with its padding"):
        ConvolutionLayer(1, (5, 5)).output([Shape(1, 2, 2)])


def test_an_unknown_network_is_told_which_there_are():
    with pytest.raises(InputError, match="unknown network 'lenet'; expected one of alexnet, densenet121"):
        network("lenet")
