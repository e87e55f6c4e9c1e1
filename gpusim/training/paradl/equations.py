"""ParaDL's equations (Kahira et al., HPDC'21; technical report, table III and appendix [V]), of one iteration.

Symbols of the paper, and what stands for them here:

    B       batch: samples of an iteration             p        ranks; p = p1 x p2: p1 groups of p2 ranks
    x_l y_l elements of a layer's input and output,    w_l      its parameters, W their sum
            of one sample                              G        layers; here those that are divided
    alpha   latency of a message, us                   beta     us a byte
    delta   bytes of an element                        S        micro-batches of a pipeline
    FW BW   forward and backward of a layer, us        WU       update of its parameters, us
    gamma   share of x and y and their gradients that is held at once

The paper counts an epoch of D samples, which is D/B iterations. Every collective is a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Amounts = Sequence[float] | npt.NDArray[Any]  # of tensors or messages

DELTA = 4  # bytes of a 32-bit float


@dataclass(frozen=True, slots=True)
class Link:
    """The time of a message between two ranks: alpha_us + bytes x beta_us_per_byte, or as measured by size."""

    alpha_us: float  # latency
    beta_us_per_byte: float  # time a byte
    # (bytes, us) of messages, ascending: straight between them, in proportion above; empty: alpha and beta
    measured: tuple[tuple[float, float], ...] = ()
    # the same in rings of more ranks than two, by their number, ascending
    among: tuple[tuple[int, tuple[tuple[float, float], ...]], ...] = ()

    def us(self, bytes: Amounts, ranks: int = 2) -> float:
        """Time of messages of these sizes, one after the other.

        In a ring of so many ranks they take as long as measured among the most ranks that are no more.
        """
        sizes = np.asarray(bytes, dtype=float)
        measured = [self.measured, *(found for least, found in self.among if least <= ranks)][-1]
        if not measured:
            return float(sizes.size * self.alpha_us + sizes.sum() * self.beta_us_per_byte)
        known, took = np.array(measured).T
        return float((np.interp(sizes, known, took) * np.maximum(sizes / known[-1], 1.0)).sum())


@dataclass(frozen=True, slots=True)
class Links:
    """The link for each kind of collective: libraries reach a different bandwidth in each."""

    all_reduce: Link
    all_gather: Link
    send_receive: Link


def all_reduce_us(p: int, bytes: Amounts, links: Links) -> float:
    """Ring: 2 (p - 1) (alpha + m beta / p) for every tensor of m bytes [V]."""
    return 2 * (p - 1) * links.all_reduce.us(np.asarray(bytes) / p, p)


def all_gather_us(p: int, bytes: Amounts, links: Links) -> float:
    """Ring: (p - 1) (alpha + m beta / p) for every gathered tensor of m bytes [V]."""
    return (p - 1) * links.all_gather.us(np.asarray(bytes) / p, p)


def send_receive_us(bytes: Amounts, links: Links) -> float:
    """Point to point: alpha + m beta for every message of m bytes [V]."""
    return links.send_receive.us(bytes)


# ---- computation of a rank


def computation_us(divided_us: float, whole_us: float, update_us: float) -> float:
    """T_comp = sum over divided layers of (FW + BW) / p + sum over the others of FW + BW + sum of WU.

    With all layers divided and times that go with the samples this is (B/p) sum (FW + BW) + sum WU, as table III has
    it; layers that run whole on every rank are the paper's code's [V].

    Args:
        divided_us: FW + BW of a rank's part of the divided layers.
        whole_us: FW + BW of the layers that every rank runs whole, for the samples it has.
        update_us: WU of the parameters that a rank holds.
    """
    return divided_us + whole_us + update_us


def pipeline_computation_us(p: int, S: int, forward_us: float, backward_us: float, update_us: float) -> float:
    """T_comp = (p + S - 1) (max FW_Gi + max BW_Gi) + max WU_Gi, times of a micro-batch of B/S samples.

    Table III puts WU in with units that do not agree; an iteration updates once [D].
    """
    return (p + S - 1) * (forward_us + backward_us) + update_us


# ---- communication of a rank


def data_us(p: int, W: float, links: Links) -> float:
    """T_comm = 2 (p - 1) (alpha + W delta beta / p): gradients, all-reduced."""
    return all_reduce_us(p, [W * DELTA], links) if p > 1 else 0.0


def spatial_us(p: int, B: float, W: float, halos: Amounts, gathered: Amounts, links: Links) -> float:
    """T_comm = 2 (p-1)(alpha + W delta beta / p) + 2 sum (2 alpha + B (halo(x) + halo(dL/dy)) delta beta) + gather.

    An exchange is two messages, up and down, forward and again backward. Where the divided layers end, their output is
    gathered; its gradient every rank has whole and takes its part of.

    Args:
        p: ranks that divide the rows.
        B: samples.
        W: parameters of the divided layers.
        halos: elements that a rank sends, both ways together, of every layer that has a halo.
        gathered: elements of the tensors where the divided layers end, whole.
        links: between the ranks.
    """
    messages = np.repeat(np.asarray(halos, dtype=float) / 2, 2)
    return (
        data_us(p, W, links)
        + 2 * send_receive_us(messages * B * DELTA, links)
        + all_gather_us(p, np.asarray(gathered) * B * DELTA, links)
    )


def filter_us(p: int, B: float, y: Amounts, x: Amounts, links: Links) -> float:
    """T_comm = sum over divided layers of (p-1)(alpha + B y_l delta beta / p) + 2 (p-1)(alpha + B x_l delta beta / p).

    Outputs are gathered forward, gradients of inputs all-reduced backward. If nothing stands between
    divided layers, x_(l+1) = y_l, and this is the paper's 3 (p - 1) sum over l < G of (alpha + B y_l delta beta / p).
    """
    scale = B * DELTA
    return all_gather_us(p, np.asarray(y) * scale, links) + all_reduce_us(p, np.asarray(x) * scale, links)


def channel_us(p: int, B: float, y: Amounts, x: Amounts, links: Links) -> float:
    """As `filter_us`, with outputs all-reduced forward and gradients of inputs gathered backward."""
    return filter_us(p, B, x, y, links)


def pipeline_us(p: int, S: int, B: float, y: float, links: Links) -> float:
    """T_comm = 2 (p + S - 2) max over cuts of (alpha + (B/S) y delta beta)."""
    return 2 * (p + S - 2) * send_receive_us([B / S * y * DELTA], links)


# ---- memory of a rank


def memory_bytes(activations: float, parameters: float, gamma: float = 1.0) -> float:
    """2 delta (gamma sum of a rank's B (x_l + y_l) + w_l): values and their gradients.

    The report has no gamma (1: nothing is given back before the iteration ends); that it is of x and y alone is [D].

    Args:
        activations: elements of the inputs and outputs of the layers that a rank has, all its samples.
        parameters: elements of the parameters that it has.
        gamma: share of the activations that is held at once.
    """
    return 2 * DELTA * (gamma * activations + parameters)
