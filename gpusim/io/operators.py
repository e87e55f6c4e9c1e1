"""FLOP and bytes of a PyTorch operator, from its name and its inputs as a profile with shapes records them.

The FLOP of matrix products, attention and convolutions follow from the sizes; bytes are those of each input and output
once, so both are the least that a kernel can do. An operator that is none of these is taken as one that reads its
inputs and writes as much as the largest of them: pointwise, normalisation, softmax, copies [D].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gpusim.trace.kernels import Arithmetic, Work

Shape = tuple[int, ...]

TYPES: Mapping[str, tuple[int, Arithmetic]] = {  # bytes of a number, and how it is computed with
    "c10::BFloat16": (2, "16-bit"),
    "c10::Half": (2, "16-bit"),
    "float": (4, "32-bit"),
    "double": (8, "64-bit"),
    "c10::Float8_e4m3fn": (1, "8-bit"),
    "c10::Float8_e5m2": (1, "8-bit"),
    "signed char": (1, "8-bit"),
    "unsigned char": (1, "8-bit"),
    "bool": (1, "8-bit"),
    "int": (4, "32-bit"),
    "long": (8, "32-bit"),
    "long int": (8, "32-bit"),
}
PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_scaled_mm": 0}  # place of the first factor among the inputs
HEADS_FIRST = ("_scaled_dot_product",)  # attention whose inputs are (batch, heads, tokens, size); else tokens first
CAUSAL = {  # place of the input that says so
    "_flash_attention_forward": 8,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_cudnn_attention": 6,
    "_cudnn_attention_forward": 9,
    "_scaled_dot_product_efficient_attention": 6,
}
CONVOLUTIONS = ("cudnn_convolution", "convolution", "_convolution", "conv2d", "_conv_depthwise2d")
REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "norm", "linalg_vector_norm")
ROWS = ("embedding", "index_select", "gather")
MOST_EXTENT, MOST_DIMENSIONS = 2**40, 16
FLOP_PER_NUMBER = 1.0


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as recorded."""

    name: str  # such as ``aten::mm``
    shapes: tuple[Shape, ...] = ()  # of its inputs; of those that are no tensors ()
    types: tuple[str, ...] = ()  # of its inputs, as PyTorch names them; of those without one empty
    values: tuple[str, ...] = ()  # of its inputs that are no tensors, as text


def operator_of(name: str, args: Mapping[str, Any]) -> Operator:
    """An operator of a profile, without fields of a wrong type."""
    shapes = tuple(map(_shape, _listed(args.get("Input Dims"))))
    types = tuple(one if isinstance(one, str) else "" for one in _listed(args.get("Input type")))
    values = tuple(one if isinstance(one, str) else "" for one in _listed(args.get("Concrete Inputs")))
    return Operator(name, shapes, types, values)


def work_of(operator: Operator) -> Work | None:
    """Least work and traffic of an operator; None where its inputs do not tell."""
    name = operator.name.rpartition("::")[2]
    inputs = zip(operator.shapes, operator.types, strict=False)
    tensors = [(shape, TYPES[kind]) for shape, kind in inputs if shape and kind in TYPES]
    if not tensors:
        return None
    size, arithmetic = tensors[0][1]
    counted = _counter(name)(operator, name, [shape for shape, _ in tensors])
    if counted is None:
        return None
    flop, written = counted
    read = sum(prod(shape) * one for shape, (one, _) in tensors)
    if name in ROWS:  # of the table no more than the rows that are asked for
        read = min(read, int(written * size + prod(tensors[-1][0]) * tensors[-1][1][0]))
    return Work(flop=float(flop), read_bytes=float(read), write_bytes=float(written * size), arithmetic=arithmetic)


_Counted = tuple[float, float] | None  # FLOP, and numbers that are written


def _counter(name: str) -> Callable[[Operator, str, Sequence[Shape]], _Counted]:
    if name in PRODUCTS:
        return _product
    if "attention" in name:
        return _attention
    return _convolution if name in CONVOLUTIONS else _streamed


def _product(_: Operator, name: str, shapes: Sequence[Shape]) -> _Counted:
    factors = shapes[PRODUCTS[name] :][:2]
    if len(factors) < 2 or any(len(one) < 2 for one in factors):
        return None
    (*batch, rows, inner), columns = factors[0], factors[1][-1]
    written = prod(batch) * rows * columns
    return 2.0 * written * inner, written


def _attention(operator: Operator, name: str, shapes: Sequence[Shape]) -> _Counted:
    if len(shapes) < 3 or any(len(one) != 4 for one in shapes[:3]):
        return None
    tokens, heads = (2, 1) if name.startswith(HEADS_FIRST) else (1, 2)
    queries, keys, values = shapes[:3]
    products = float(queries[0] * queries[heads] * queries[tokens] * keys[tokens])
    causal = CAUSAL.get(name)
    if causal is not None and operator.values[causal : causal + 1] == ("True",):
        longest = max(queries[tokens], keys[tokens])
        products *= 1.0 - 0.5 * min(queries[tokens], keys[tokens]) / longest  # of the square that both have in common
    return 2.0 * products * (queries[3] + values[3]), prod(queries[:3]) * values[3]


def _convolution(operator: Operator, _: str, shapes: Sequence[Shape]) -> _Counted:
    if len(shapes) < 2 or len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return None
    (batch, _channels, *size), (out, inner, *kernel) = shapes[0], shapes[1]
    pairs = [tuple(map(int, found)) for text in operator.values if (found := re.findall(r"\d+", text)) and "[" in text]
    padding, stride, dilation = (*[one for one in pairs if len(one) == 2][:3], (0, 0), (1, 1), (1, 1))[:3]
    outputs = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // max(1, stride[i]) + 1 for i in range(2)
    ]
    if min(outputs) < 1:
        return None
    written = batch * out * prod(outputs)
    return 2.0 * written * inner * prod(kernel), written


def _streamed(_: Operator, name: str, shapes: Sequence[Shape]) -> _Counted:
    """An operator that reads its inputs once, and writes as much as the largest of them, or nearly nothing."""
    if name in ROWS:
        written = prod(shapes[-1]) * (shapes[0][-1] if name == "embedding" else 1)
        return 0.0, written
    largest = max(map(prod, shapes))
    return FLOP_PER_NUMBER * largest, 0.0 if name in REDUCTIONS else largest


def _shape(given: Any) -> Shape:
    extents = _listed(given)
    plain = all(type(one) is int and 0 < one <= MOST_EXTENT for one in extents) and len(extents) <= MOST_DIMENSIONS
    return tuple(extents) if plain else ()


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []
