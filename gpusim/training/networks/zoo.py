"""Networks by name, as their papers and reference implementations define them; dropout is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_letters

from gpusim.common.errors import InputError, quote
from gpusim.training.networks.layers import (
    Addition,
    BatchNormalisation,
    Concatenation,
    Convolution,
    Linear,
    LocalResponseNormalisation,
    Pair,
    Pooling,
    ReLU,
    Shape,
)
from gpusim.training.networks.network import Builder, Network

CLASSES = 1000  # of ImageNet

# Channels of GoogLeNet's inception modules (Szegedy et al., CVPR'15, table 1) [V]: 1x1, 3x3 reduce, 3x3, 5x5 reduce,
# 5x5, pool projection.
INCEPTION = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
RESNET50 = {"2": (3, 64), "3": (4, 128), "4": (6, 256), "5": (3, 512)}  # blocks and their narrow channels, by stage
VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
FIRE = {  # squeeze and expand channels of SqueezeNet 1.1
    "2": (16, 64), "3": (16, 64), "4": (32, 128), "5": (32, 128),
    "6": (48, 192), "7": (48, 192), "8": (64, 256), "9": (64, 256),
}  # fmt: skip
DENSE_BLOCKS = (6, 12, 24, 16)
GROWTH = 32
ONE, THREE = (1, 1), (3, 3)
Chain = Sequence[tuple[str, int, Pair]]  # convolutions one after the other: names, channels, kernels
V3_35: tuple[Chain, ...] = (  # a module of Inception-v3
    [("1x1", 64, ONE)],
    [("5x5_reduce", 48, ONE), ("5x5", 64, (5, 5))],
    [("double_reduce", 64, ONE), ("double_1", 96, THREE), ("double_2", 96, THREE)],
)


def network(name: str) -> Network:
    """A network by name."""
    if name not in NETWORKS:
        raise InputError(None, "NETWORK", f"unknown network {quote(name)}", f"one of {', '.join(NETWORKS)}")
    return NETWORKS[name]()


def alexnet() -> Network:
    """AlexNet on one GPU (Krizhevsky, arXiv 1404.5997) [M]."""
    net = Builder("alexnet", Shape(3, 224, 224))
    _conv_relu(net, "conv1", 64, 11, stride=4, padding=2)
    net.add("pool1", Pooling("max", (3, 3), 2))
    _conv_relu(net, "conv2", 192, 5, padding=2)
    net.add("pool2", Pooling("max", (3, 3), 2))
    _conv_relu(net, "conv3", 384, 3, padding=1)
    _conv_relu(net, "conv4", 256, 3, padding=1)
    _conv_relu(net, "conv5", 256, 3, padding=1)
    net.add("pool5", Pooling("max", (3, 3), 2))
    _classifier(net, 4096, 4096)
    return net.network()


def vgg16() -> Network:
    """VGG-16 (Simonyan and Zisserman, ICLR'15, configuration D) [M]."""
    net = Builder("vgg16", Shape(3, 224, 224))
    for stage, widths in enumerate(VGG16, start=1):
        for at, width in enumerate(widths, start=1):
            _conv_relu(net, f"conv{stage}_{at}", width, 3, padding=1)
        net.add(f"pool{stage}", Pooling("max", (2, 2), 2))
    _classifier(net, 4096, 4096)
    return net.network()


def googlenet() -> Network:
    """GoogLeNet without its two auxiliary classifiers (Szegedy et al., CVPR'15, table 1) [V]."""
    net = Builder("googlenet", Shape(3, 224, 224))
    _conv_relu(net, "conv1.7x7", 64, 7, stride=2, padding=3)
    net.add("pool1", Pooling("max", (3, 3), 2, ceil=True))
    net.add("norm1", LocalResponseNormalisation())
    _conv_relu(net, "conv2.1x1", 64, 1)
    _conv_relu(net, "conv2.3x3", 192, 3, padding=1)
    net.add("norm2", LocalResponseNormalisation())
    last = net.add("pool2", Pooling("max", (3, 3), 2, ceil=True))
    for name, widths in INCEPTION.items():
        if name in ("4a", "5a"):
            last = net.add(f"pool{int(name[0]) - 1}", Pooling("max", (3, 3), 2, ceil=True), last)
        last = _inception(net, name, last, widths)
    net.add("pool5", Pooling("average", (7, 7)), last)
    net.add("classifier", Linear(CLASSES))
    return net.network()


def resnet50() -> Network:
    """ResNet-50 (He et al., CVPR'16) with the stride of a block on its 3x3, as in version 1.5 [M]."""
    return residual("resnet50", RESNET50)


def residual(name: str, stages: Mapping[str, tuple[int, int]]) -> Network:
    """A ResNet of blocks of three convolutions: for each stage how many, and their narrow channels."""
    net = Builder(name, Shape(3, 224, 224))
    _conv_norm(net, "conv1", 64, (7, 7), stride=2, padding=(3, 3))
    last = net.add("pool1", Pooling("max", (3, 3), 2, (1, 1)))
    for stage, (blocks, width) in stages.items():
        for at in range(blocks):
            stride = 2 if at == 0 and stage != "2" else 1
            block = f"{stage}{ascii_letters[at]}"
            last = _residual(net, block, last, width, stride, shortcut=at == 0)
    net.add("pool5", Pooling("average", (7, 7)), last)
    net.add("classifier", Linear(CLASSES))
    return net.network()


def squeezenet() -> Network:
    """SqueezeNet 1.1 (Iandola et al., arXiv 1602.07360, and the authors' later version) [M]."""
    net = Builder("squeezenet", Shape(3, 224, 224))
    _conv_relu(net, "conv1", 64, 3, stride=2)
    last = net.add("pool1", Pooling("max", (3, 3), 2, ceil=True))
    for number, (squeeze, expand) in FIRE.items():
        squeezed = _conv_relu(net, f"fire{number}.squeeze", squeeze, 1, last)
        narrow = _conv_relu(net, f"fire{number}.expand1x1", expand, 1, squeezed)
        wide = _conv_relu(net, f"fire{number}.expand3x3", expand, 3, squeezed, padding=1)
        last = net.add(f"fire{number}.concat", Concatenation(), narrow, wide)
        if number in ("3", "5"):
            last = net.add(f"pool{number}", Pooling("max", (3, 3), 2, ceil=True))
    _conv_relu(net, "conv10", CLASSES, 1, last)
    net.add("pool10", Pooling("average", (13, 13)))
    return net.network()


def densenet121() -> Network:
    """DenseNet-121 (Huang et al., CVPR'17) [M]."""
    net = Builder("densenet121", Shape(3, 224, 224))
    _conv_norm(net, "conv1", 64, (7, 7), stride=2, padding=(3, 3))
    last = net.add("pool1", Pooling("max", (3, 3), 2, (1, 1)))
    channels = 64
    for block, layers in enumerate(DENSE_BLOCKS, start=1):
        parts = [last]
        for at in range(1, layers + 1):
            name = f"block{block}.{at}"
            given = parts[0] if at == 1 else net.add(f"{name}.concat", Concatenation(), *parts)
            _norm_relu(net, f"{name}.in", given)
            _conv_norm(net, f"{name}.bottleneck", 4 * GROWTH, (1, 1))
            parts.append(net.add(f"{name}.conv3x3", Convolution(GROWTH, (3, 3), 1, (1, 1), bias=False)))
        last = net.add(f"block{block}.concat", Concatenation(), *parts)
        channels += layers * GROWTH
        if block < len(DENSE_BLOCKS):
            channels //= 2
            _norm_relu(net, f"transition{block}", last)
            net.add(f"transition{block}.conv", Convolution(channels, (1, 1), bias=False))
            last = net.add(f"transition{block}.pool", Pooling("average", (2, 2), 2))
    _norm_relu(net, "norm5", last)
    net.add("pool5", Pooling("average", (7, 7)))
    net.add("classifier", Linear(CLASSES))
    return net.network()


def inception_v3() -> Network:
    """Inception-v3 without its auxiliary classifier (Szegedy et al., CVPR'16) [M]."""
    net = Builder("inception_v3", Shape(3, 299, 299))
    _conv_norm(net, "conv1", 32, (3, 3), stride=2)
    _conv_norm(net, "conv2", 32, (3, 3))
    _conv_norm(net, "conv3", 64, (3, 3), padding=(1, 1))
    net.add("pool1", Pooling("max", (3, 3), 2))
    _conv_norm(net, "conv4", 80, (1, 1))
    _conv_norm(net, "conv5", 192, (3, 3))
    last = net.add("pool2", Pooling("max", (3, 3), 2))
    for name, pool in (("5b", 32), ("5c", 64), ("5d", 64)):
        last = _v3_module(net, name, last, pool, [_chain(net, name, last, chain) for chain in V3_35])
    double: Chain = [("double_reduce", 64, ONE), ("double_1", 96, THREE), ("double_2", 96, THREE)]
    last = _v3_reduction(net, "6a", last, [("3x3", 384, THREE)], double)
    for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        branches = [_chain(net, name, last, chain) for chain in _v3_17_chains(width)]
        last = _v3_module(net, name, last, 192, branches)
    seven: Chain = [("7x7_reduce", 192, ONE), ("7x7_1", 192, (1, 7)), ("7x7_2", 192, (7, 1)), ("7x7_3", 192, THREE)]
    last = _v3_reduction(net, "7a", last, [("3x3_reduce", 192, ONE), ("3x3", 320, THREE)], seven)
    for name in ("7b", "7c"):
        last = _v3_8(net, name, last)
    net.add("pool8", Pooling("average", (8, 8)), last)
    net.add("classifier", Linear(CLASSES))
    return net.network()


NETWORKS: dict[str, Callable[[], Network]] = {
    "alexnet": alexnet,
    "densenet121": densenet121,
    "googlenet": googlenet,
    "inception_v3": inception_v3,
    "resnet50": resnet50,
    "squeezenet": squeezenet,
    "vgg16": vgg16,
}


# ---- pieces: each adds its layers and gives the name of the last


def _conv_relu(
    net: Builder, name: str, channels: int, size: int, *inputs: str, stride: int = 1, padding: int = 0
) -> str:
    net.add(name, Convolution(channels, (size, size), stride, (padding, padding)), *inputs)
    return net.add(f"{name}.relu", ReLU())


def _conv_norm(
    net: Builder,
    name: str,
    channels: int,
    kernel: Pair,
    *inputs: str,
    stride: int = 1,
    padding: Pair = (0, 0),
    relu: bool = True,
) -> str:
    net.add(name, Convolution(channels, kernel, stride, padding, bias=False), *inputs)
    normed = net.add(f"{name}.norm", BatchNormalisation())
    return net.add(f"{name}.relu", ReLU()) if relu else normed


def _norm_relu(net: Builder, name: str, *inputs: str) -> str:
    net.add(f"{name}.norm", BatchNormalisation(), *inputs)
    return net.add(f"{name}.relu", ReLU())


def _classifier(net: Builder, *widths: int) -> None:
    for at, width in enumerate(widths, start=6):
        net.add(f"fc{at}", Linear(width))
        net.add(f"fc{at}.relu", ReLU())
    net.add("classifier", Linear(CLASSES))


def _inception(net: Builder, name: str, given: str, widths: tuple[int, ...]) -> str:
    one, three_reduce, three, five_reduce, five, pool = widths
    branches = [_conv_relu(net, f"{name}.1x1", one, 1, given)]
    _conv_relu(net, f"{name}.3x3_reduce", three_reduce, 1, given)
    branches.append(_conv_relu(net, f"{name}.3x3", three, 3, padding=1))
    _conv_relu(net, f"{name}.5x5_reduce", five_reduce, 1, given)
    branches.append(_conv_relu(net, f"{name}.5x5", five, 5, padding=2))
    net.add(f"{name}.pool", Pooling("max", (3, 3), 1, (1, 1)), given)
    branches.append(_conv_relu(net, f"{name}.pool_proj", pool, 1))
    return net.add(f"{name}.concat", Concatenation(), *branches)


def _residual(net: Builder, name: str, given: str, width: int, stride: int, shortcut: bool) -> str:
    _conv_norm(net, f"{name}.reduce", width, (1, 1), given)
    _conv_norm(net, f"{name}.3x3", width, (3, 3), stride=stride, padding=(1, 1))
    wide = _conv_norm(net, f"{name}.expand", 4 * width, (1, 1), relu=False)
    if shortcut:
        given = _conv_norm(net, f"{name}.shortcut", 4 * width, (1, 1), given, stride=stride, relu=False)
    net.add(f"{name}.add", Addition(), wide, given)
    return net.add(f"{name}.relu", ReLU())


def _chain(net: Builder, name: str, given: str, chain: Chain, reduces: bool = False) -> str:
    """Convolutions one after the other that keep height and width; the last of a reduction about halves them."""
    for at, (part, channels, kernel) in enumerate(chain, 1):
        halves = reduces and at == len(chain)
        padding = (0, 0) if halves else (kernel[0] // 2, kernel[1] // 2)
        given = _conv_norm(net, f"{name}.{part}", channels, kernel, given, stride=1 + halves, padding=padding)
    return given


def _v3_reduction(net: Builder, name: str, given: str, *chains: Chain) -> str:
    branches = [_chain(net, name, given, chain, reduces=True) for chain in chains]
    branches.append(net.add(f"{name}.pool", Pooling("max", THREE, 2), given))
    return net.add(f"{name}.concat", Concatenation(), *branches)


def _v3_module(net: Builder, name: str, given: str, pool: int, branches: Sequence[str]) -> str:
    net.add(f"{name}.pool", Pooling("average", THREE, 1, (1, 1)), given)
    projected = _conv_norm(net, f"{name}.pool_proj", pool, ONE)
    return net.add(f"{name}.concat", Concatenation(), *branches, projected)


def _v3_8(net: Builder, name: str, given: str) -> str:
    branches = [_chain(net, name, given, [("1x1", 320, ONE)])]
    double: Chain = [("double_reduce", 448, ONE), ("double_1", 384, THREE)]
    for part, chain in (("3x3", [("3x3_reduce", 384, ONE)]), ("double", double)):
        reduced = _chain(net, name, given, chain)
        for way, kernel in (("row", (1, 3)), ("column", (3, 1))):
            branches.append(_chain(net, name, reduced, [(f"{part}_{way}", 384, kernel)]))
    return _v3_module(net, name, given, 192, branches)


def _v3_17_chains(width: int) -> tuple[Chain, ...]:
    row, column = (1, 7), (7, 1)
    return (
        [("1x1", 192, ONE)],
        [("7x7_reduce", width, ONE), ("7x7_1", width, row), ("7x7_2", 192, column)],
        [("double_reduce", width, ONE), ("double_1", width, column), ("double_2", width, row),
         ("double_3", width, column), ("double_4", 192, row)],
    )  # fmt: skip
