"""Networks by name, as their papers and reference implementations define them; dropout is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_letters
from typing import Literal

from gpusim.common.errors import InputError, quote
from gpusim.training.networks.layers import (
    Addition,
    BatchNormalisation,
    Concatenation,
    ConvolutionLayer,
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
ONE, THREE, FIVE, SEVEN = (1, 1), (3, 3), (5, 5), (7, 7)
ROW, COLUMN = (1, 7), (7, 1)
Chain = Sequence[tuple[str, int, Pair]]  # convolutions one after the other: names, channels, kernels


class _NetworkBuilder(Builder):
    """Adds what networks repeat. A convolution has a bias, or batch normalisation after it, and then ReLU."""

    def __init__(self, name: str, size: int = 224, normed: bool = True) -> None:
        super().__init__(name, Shape(3, size, size))
        self._normed = normed

    def conv(
        self,
        name: str,
        channels: int,
        kernel: Pair,
        *inputs: str,
        stride: int = 1,
        padding: Pair | None = None,
        relu: bool = True,
    ) -> str:
        """Add a convolution. The default padding is half the kernel: with stride 1, height and width stay."""
        padding = (kernel[0] // 2, kernel[1] // 2) if padding is None else padding
        last = self.add(name, ConvolutionLayer(channels, kernel, stride, padding, bias=not self._normed), *inputs)
        if self._normed:
            last = self.add(f"{name}.norm", BatchNormalisation())
        return self.add(f"{name}.relu", ReLU()) if relu else last

    def norm_relu(self, name: str, *inputs: str) -> str:
        self.add(f"{name}.norm", BatchNormalisation(), *inputs)
        return self.add(f"{name}.relu", ReLU())

    def chain(self, name: str, given: str, chain: Chain, reduces: bool = False) -> str:
        """Add convolutions one after the other; the last of a reduction about halves height and width."""
        for at, (part, channels, kernel) in enumerate(chain, 1):
            halves = reduces and at == len(chain)
            padding = (0, 0) if halves else None
            given = self.conv(f"{name}.{part}", channels, kernel, given, stride=1 + halves, padding=padding)
        return given

    def module(self, name: str, given: str, kind: Literal["max", "average"], pool: int, *branches: Chain | str) -> str:
        """Add chains beside one another, or what ends in a layer, and beside them a pooling with a projection."""
        ends = [one if isinstance(one, str) else self.chain(name, given, one) for one in branches]
        self.add(f"{name}.pool", Pooling(kind, THREE, 1, (1, 1)), given)
        return self.add(f"{name}.concat", Concatenation(), *ends, self.conv(f"{name}.pool_proj", pool, ONE))

    def reduction(self, name: str, given: str, *chains: Chain) -> str:
        """Add chains that about halve height and width, and beside them a pooling that does."""
        ends = [self.chain(name, given, chain, reduces=True) for chain in chains]
        return self.add(
            f"{name}.concat", Concatenation(), *ends, self.add(f"{name}.pool", Pooling("max", THREE, 2), given)
        )

    def classified(self, *hidden: int) -> Network:
        """Add fully connected layers, the last of them the classifier, and give the network."""
        for at, width in enumerate(hidden, start=6):
            self.add(f"fc{at}", Linear(width))
            self.add(f"fc{at}.relu", ReLU())
        self.add("classifier", Linear(CLASSES))
        return self.network()


def network(name: str) -> Network:
    """A network by name."""
    if name not in NETWORKS:
        raise InputError(None, "NETWORK", f"unknown network {quote(name)}", f"one of {', '.join(NETWORKS)}")
    return NETWORKS[name]()


def alexnet() -> Network:
    """AlexNet on one GPU (Krizhevsky, arXiv 1404.5997) [M]."""
    net = _NetworkBuilder("alexnet", normed=False)
    net.conv("conv1", 64, (11, 11), stride=4, padding=(2, 2))
    net.add("pool1", Pooling("max", THREE, 2))
    net.conv("conv2", 192, FIVE)
    net.add("pool2", Pooling("max", THREE, 2))
    for name, channels in (("conv3", 384), ("conv4", 256), ("conv5", 256)):
        net.conv(name, channels, THREE)
    net.add("pool5", Pooling("max", THREE, 2))
    return net.classified(4096, 4096)


def vgg16() -> Network:
    """VGG-16 (Simonyan and Zisserman, ICLR'15, configuration D) [M]."""
    net = _NetworkBuilder("vgg16", normed=False)
    for stage, widths in enumerate(VGG16, start=1):
        for at, width in enumerate(widths, start=1):
            net.conv(f"conv{stage}_{at}", width, THREE)
        net.add(f"pool{stage}", Pooling("max", (2, 2), 2))
    return net.classified(4096, 4096)


def googlenet() -> Network:
    """GoogLeNet without its two auxiliary classifiers (Szegedy et al., CVPR'15, table 1) [V]."""
    net = _NetworkBuilder("googlenet", normed=False)
    net.conv("conv1.7x7", 64, SEVEN, stride=2)
    net.add("pool1", Pooling("max", THREE, 2, ceil=True))
    net.add("norm1", LocalResponseNormalisation())
    net.conv("conv2.1x1", 64, ONE)
    net.conv("conv2.3x3", 192, THREE)
    net.add("norm2", LocalResponseNormalisation())
    last = net.add("pool2", Pooling("max", THREE, 2, ceil=True))
    for name, (one, three_reduce, three, five_reduce, five, pool) in INCEPTION.items():
        if name in ("4a", "5a"):
            last = net.add(f"pool{int(name[0]) - 1}", Pooling("max", THREE, 2, ceil=True), last)
        threes = [("3x3_reduce", three_reduce, ONE), ("3x3", three, THREE)]
        fives = [("5x5_reduce", five_reduce, ONE), ("5x5", five, FIVE)]
        last = net.module(name, last, "max", pool, [("1x1", one, ONE)], threes, fives)
    net.add("pool5", Pooling("average", SEVEN), last)
    return net.classified()


def resnet50() -> Network:
    """ResNet-50 (He et al., CVPR'16) with the stride of a block on its 3x3, as in version 1.5 [M]."""
    return residual("resnet50", RESNET50)


def residual(name: str, stages: Mapping[str, tuple[int, int]]) -> Network:
    """A ResNet of blocks of three convolutions: for each stage how many, and their narrow channels."""
    net = _NetworkBuilder(name)
    net.conv("conv1", 64, SEVEN, stride=2)
    last = net.add("pool1", Pooling("max", THREE, 2, (1, 1)))
    for stage, (blocks, width) in stages.items():
        for at in range(blocks):
            stride = 2 if at == 0 and stage != "2" else 1
            block = f"{stage}{ascii_letters[at]}"
            net.conv(f"{block}.reduce", width, ONE, last)
            net.conv(f"{block}.3x3", width, THREE, stride=stride)
            wide = net.conv(f"{block}.expand", 4 * width, ONE, relu=False)
            if at == 0:
                last = net.conv(f"{block}.shortcut", 4 * width, ONE, last, stride=stride, relu=False)
            net.add(f"{block}.add", Addition(), wide, last)
            last = net.add(f"{block}.relu", ReLU())
    net.add("pool5", Pooling("average", SEVEN), last)
    return net.classified()


def squeezenet() -> Network:
    """SqueezeNet 1.1 (Iandola et al., arXiv 1602.07360, and the authors' later version) [M]."""
    net = _NetworkBuilder("squeezenet", normed=False)
    net.conv("conv1", 64, THREE, stride=2, padding=(0, 0))
    last = net.add("pool1", Pooling("max", THREE, 2, ceil=True))
    for number, (squeeze, expand) in FIRE.items():
        squeezed = net.conv(f"fire{number}.squeeze", squeeze, ONE, last)
        narrow = net.conv(f"fire{number}.expand1x1", expand, ONE, squeezed)
        wide = net.conv(f"fire{number}.expand3x3", expand, THREE, squeezed)
        last = net.add(f"fire{number}.concat", Concatenation(), narrow, wide)
        if number in ("3", "5"):
            last = net.add(f"pool{number}", Pooling("max", THREE, 2, ceil=True))
    net.conv("conv10", CLASSES, ONE, last)
    net.add("pool10", Pooling("average", (13, 13)))
    return net.network()


def densenet121() -> Network:
    """DenseNet-121 (Huang et al., CVPR'17) [M]."""
    net = _NetworkBuilder("densenet121")
    net.conv("conv1", 64, SEVEN, stride=2)
    last = net.add("pool1", Pooling("max", THREE, 2, (1, 1)))
    channels = 64
    for block, layers in enumerate(DENSE_BLOCKS, start=1):
        parts = [last]
        for at in range(1, layers + 1):
            name = f"block{block}.{at}"
            given = parts[0] if at == 1 else net.add(f"{name}.concat", Concatenation(), *parts)
            net.norm_relu(f"{name}.in", given)
            net.conv(f"{name}.bottleneck", 4 * GROWTH, ONE)
            parts.append(net.add(f"{name}.conv3x3", ConvolutionLayer(GROWTH, THREE, 1, (1, 1), bias=False)))
        last = net.add(f"block{block}.concat", Concatenation(), *parts)
        channels += layers * GROWTH
        if block < len(DENSE_BLOCKS):
            channels //= 2
            net.norm_relu(f"transition{block}", last)
            net.add(f"transition{block}.conv", ConvolutionLayer(channels, ONE, bias=False))
            last = net.add(f"transition{block}.pool", Pooling("average", (2, 2), 2))
    net.norm_relu("norm5", last)
    net.add("pool5", Pooling("average", SEVEN))
    return net.classified()


def inception_v3() -> Network:
    """Inception-v3 without its auxiliary classifier (Szegedy et al., CVPR'16) [M]."""
    net = _NetworkBuilder("inception_v3", 299)
    net.conv("conv1", 32, THREE, stride=2, padding=(0, 0))
    net.conv("conv2", 32, THREE, padding=(0, 0))
    net.conv("conv3", 64, THREE)
    net.add("pool1", Pooling("max", THREE, 2))
    net.conv("conv4", 80, ONE)
    net.conv("conv5", 192, THREE, padding=(0, 0))
    last = net.add("pool2", Pooling("max", THREE, 2))
    five = [("5x5_reduce", 48, ONE), ("5x5", 64, FIVE)]
    double = [("double_reduce", 64, ONE), ("double_1", 96, THREE), ("double_2", 96, THREE)]
    for name, pool in (("5b", 32), ("5c", 64), ("5d", 64)):
        last = net.module(name, last, "average", pool, [("1x1", 64, ONE)], five, double)
    last = net.reduction("6a", last, [("3x3", 384, THREE)], double)
    for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        seven = [("7x7_reduce", width, ONE), ("7x7_1", width, ROW), ("7x7_2", 192, COLUMN)]
        longer = [("double_reduce", width, ONE), ("double_1", width, COLUMN), ("double_2", width, ROW)]
        longer += [("double_3", width, COLUMN), ("double_4", 192, ROW)]
        last = net.module(name, last, "average", 192, [("1x1", 192, ONE)], seven, longer)
    seven = [("7x7_reduce", 192, ONE), ("7x7_1", 192, ROW), ("7x7_2", 192, COLUMN), ("7x7_3", 192, THREE)]
    last = net.reduction("7a", last, [("3x3_reduce", 192, ONE), ("3x3", 320, THREE)], seven)
    for name in ("7b", "7c"):
        branches = [net.chain(name, last, [("1x1", 320, ONE)])]
        double = [("double_reduce", 448, ONE), ("double_1", 384, THREE)]
        for part, chain in (("3x3", [("3x3_reduce", 384, ONE)]), ("double", double)):
            reduced = net.chain(name, last, chain)
            branches += [net.chain(name, reduced, [(f"{part}_row", 384, (1, 3))])]
            branches += [net.chain(name, reduced, [(f"{part}_column", 384, (3, 1))])]
        last = net.module(name, last, "average", 192, *branches)
    net.add("pool8", Pooling("average", (8, 8)), last)
    return net.classified()


NETWORKS: dict[str, Callable[[], Network]] = {
    "alexnet": alexnet,
    "densenet121": densenet121,
    "googlenet": googlenet,
    "inception_v3": inception_v3,
    "resnet50": resnet50,
    "squeezenet": squeezenet,
    "vgg16": vgg16,
}
