"""Recording networks, without a GPU: what is recorded, and the traces it makes."""

from collections import Counter
from pathlib import Path

import pytest

from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.io.ncu import L2_SECTORS, LEAST_SM_PERCENT, REQUIRED, clocked, mix_from_counters
from gpusim.lab.record.calls import ALGORITHMS, calls_of
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.network_trace import PARAMETERS, placements
from gpusim.lab.record.outcomes import measure_outcomes
from gpusim.lab.record.recording import Recording
from gpusim.lab.record.shapes import subject
from gpusim.trace.file import load_trace
from gpusim.trace.operations import Convolution
from gpusim.training.networks import layers
from gpusim.training.networks.network import Builder
from gpusim.training.networks.steps import CONVOLUTION, CallWork, forward, training_iteration
from gpusim.training.networks.zoo import NETWORKS, network

ROOT = Path(__file__).parents[1]
RECORDINGS = ROOT / "experiments" / "recordings"


SHIPPED = [
    ("googlenet", 128, True),
    ("resnet50", 64, True),
    ("googlenet", 16, False),
    ("resnet50", 16, False),
    ("googlenet", 1, False),
    ("resnet50", 1, False),
]


def tiny():
    """Two branches that join, one of them an identity."""
    net = Builder("tiny", layers.Shape(3, 8, 8))
    first = net.add("a", layers.ConvolutionLayer(4, (3, 3), 1, (1, 1)))
    second = net.add("b", layers.ConvolutionLayer(4, (1, 3), 1, (0, 1), bias=False), first)
    net.add("sum", layers.Addition(), second, first)
    net.add("both", layers.Concatenation(), "sum", first)
    net.add("out", layers.Linear(2))
    return net.network()


# ---- steps


def test_forward_steps_wait_for_what_the_graph_says():
    assert {step.id: step.after for step in forward(tiny(), 2)} == {
        "a/fwd": (),
        "a.bias/fwd": ("a/fwd",),
        "b/fwd": ("a.bias/fwd",),
        "sum/fwd": ("b/fwd", "a.bias/fwd"),
        "both.0/fwd": ("sum/fwd",),
        "both.1/fwd": ("a.bias/fwd",),
        "out/fwd": ("both.0/fwd", "both.1/fwd"),
        "out.bias/fwd": ("out/fwd",),
    }


def test_backward_sums_the_gradients_of_all_readers():
    steps = training_iteration(tiny(), 2)[8:]
    assert {step.id: step.after for step in steps} == {
        "out.bias/bwd": ("out.bias/fwd",),
        "out/bwd_filter": ("out.bias/fwd",),
        "out/bwd_data": ("out.bias/fwd",),
        "both.0/bwd": ("out/bwd_data",),
        "both.1/bwd": ("out/bwd_data",),
        "b/bwd_filter": ("both.0/bwd",),
        "b/bwd_data": ("both.0/bwd",),
        "a.sum0/bwd": ("both.1/bwd", "both.0/bwd"),
        "a.sum1/bwd": ("a.sum0/bwd", "b/bwd_data"),
        "a.bias/bwd": ("a.sum1/bwd",),
        "a/bwd_filter": ("a.sum1/bwd",),  # and no gradient of the network's input
    }
    assert [step.id for step in steps if step.of_parameters] == [
        "out.bias/bwd", "out/bwd_filter", "b/bwd_filter", "a.bias/bwd", "a/bwd_filter",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_every_step_follows_what_it_waits_for(name):
    steps = training_iteration(network(name), 4)
    seen = set()
    for step in steps:
        assert set(step.after) <= seen
        assert step.id not in seen
        seen.add(step.id)
    weights = Counter(step.work.direction for step in steps if step.work.kind == CONVOLUTION)
    assert (
        weights["fwd"]
        == weights["bwd_filter"]
        == weights["bwd_data"] + sum("input" in node.inputs for node in network(name).nodes)
    )


def test_pooling_that_counts_a_partial_window_gets_the_padding_that_gives_as_many():
    pools = {s.layer: s.work for s in forward(network("googlenet"), 1) if s.work.kind == "MAX_POOL"}
    assert (pools["pool1"].height, pools["pool1"].padding) == (112, (1, 1))  # 56 windows, not 55
    assert pools["3a.pool"].padding == (1, 1)


# ---- calls


def test_equal_work_is_recorded_once_under_the_name_that_has_it_first():
    steps = forward(network("googlenet"), 128)
    calls = calls_of("googlenet", steps)
    assert len({call.op for call in calls}) == len(calls)
    layers_of_work = Counter(step.work for step in steps)
    assert len({call.work for call in calls}) == len(layers_of_work) < len(steps)
    shared = next(call for call in calls if call.layer == "3b.1x1")
    assert layers_of_work[shared.work] == 2  # 3b.3x3_reduce, too
    assert not any(call.layer == "3b.3x3_reduce" for call in calls)


def test_a_call_names_its_algorithm_and_rectangular_filter():
    calls = calls_of("inception_v3", training_iteration(network("inception_v3"), 2))
    lines = {call.op: call.line for call in calls}
    op = "inception_v3/6b.7x7_1/fwd/FFT_TILING/TF32"
    assert lines[op] == f"{op} fwd 2 128 17 17 128 1 7 0 3 1 FFT_TILING TF32"
    of_one = [call for call in calls if call.work == next(c.work for c in calls if c.op == op)]
    assert len(of_one) == 2 * len(ALGORITHMS["fwd"])  # in both maths


def test_the_counters_recorded_are_enough_for_a_trace():
    assert set(REQUIRED) <= {*COUNTERS, "Kernel Name", "Grid Size", "Block Size"}


def test_every_counter_that_gives_a_demand_is_recorded():
    read = set[str]()

    class Watched(dict[str, str]):
        def __contains__(self, counter: object) -> bool:
            read.add(str(counter))
            return super().__contains__(counter)

        def get(self, counter: str, default: object = None) -> object:  # type: ignore[override]
            read.add(counter)
            return super().get(counter, default)

    counted = Watched(dict.fromkeys((*COUNTERS, "Grid Size", "Block Size"), "1"))
    mix = mix_from_counters(counted, 132)
    assert mix is not None and clocked(mix, counted, 1.0).clock_mhz == 1.0
    assert read - {*COUNTERS} == {LEAST_SM_PERCENT, L2_SECTORS}  # stand in for others where these are missing
    assert all(getattr(mix, name) is not None for name in ("special_cycles", "double_cycles", "sm_cycles", "cluster"))


# ---- shapes


def test_shapes_from_csv_and_toml_are_the_same(tmp_path):
    rows = "name,kind,channels,height,out_channels,filter_height,filter_width,padding_width,stride\n"
    rows += "c,,8,14,16,1,7,3,1\np,max_pool,8,14,,3,,,2\n"
    (tmp_path / "s.csv").write_text(rows)
    (tmp_path / "s.toml").write_text(
        '[[layer]]\nname = "c"\nchannels = 8\nheight = 14\nout_channels = 16\nfilter_height = 1\nfilter_width = 7\n'
        'padding_width = 3\n[[layer]]\nname = "p"\nkind = "max_pool"\nchannels = 8\nheight = 14\nfilter_height = 3\n'
        "stride = 2\n"
    )
    first, second = (subject(str(tmp_path / name), 4, True) for name in ("s.csv", "s.toml"))
    assert first == second
    assert [step.id for step in first.steps] == ["c/fwd", "c/bwd_data", "c/bwd_filter", "p/fwd", "p/bwd"]
    assert (first.steps[0].work.kernel, first.steps[0].work.padding) == ((1, 7), (0, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,channels\nc,8\n", "line 2: lacks height"),
        ("name,channels,height,colour\nc,8,8,red\n", "line 2: has the unknown key 'colour'"),
        ("name,channels,height\nc,8,-1\n", "line 2.height: is '-1'"),
        ("name,channels,height\nc d,8,8\n", "line 2.name: is 'c d'"),
        ("name,channels,height,kind\nc,8,8,magic\n", "line 2.kind: is 'MAGIC'"),
        ("name,channels,height,filter_height\nc,8,8,9\n", "line 2: has a filter larger than its padded input"),
        ("name,channels,height\nc,8,8\nc,8,8\n", "line 3: has the name 'c' again"),
        ("", "lists no layers"),
        ("name,channels,height\nc,8,8,8\n", "line 2: has more cells than columns"),
        ("name,channels,height,height\nc,8,8,9\n", "line 1: has the column 'height' twice"),
        ("name,channels,height\nc,1_6,8\n", "line 2.channels: is '1_6'"),
        (f"name,channels,height\nc,{'8' * 5000},8\n", "line 2.channels: is '888"),
        (f"name,channels,height\nc,{'8' * 200_000},8\n", "is no row"),
    ],
)
def test_a_wrong_list_of_shapes_is_one_line(tmp_path, text, message):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        subject(str(tmp_path / "s.csv"), 1, False)
    assert message in str(caught.value)


def test_an_unknown_network_is_one_line():
    with pytest.raises(InputError, match=r"unknown network 'lenet'; expected one of alexnet, .*, or a \.toml"):
        subject("lenet", 1, False)
    for name in ("none.csv", "none.toml"):
        with pytest.raises(InputError, match=f"^{name}: cannot be read"):
            subject(name, 1, False)


def test_li2016_has_its_five_convolutions():
    path = Path(__file__).parents[1] / "experiments" / "li2016" / "li2016.csv"
    found = subject(str(path), 128, False)
    assert (found.name, [step.layer for step in found.steps]) == ("li2016", [f"Conv{n}" for n in range(1, 6)])
    assert found.steps[2].work == CallWork("CONVOLUTION", "fwd", 128, 128, 32, 32, 128, (9, 9), (0, 0), 1)


# ---- outcomes


class Asked:
    """Notes the conditions that it is given."""

    def __init__(self):
        self.conditions = {}

    def lines(self, experiment, calls, *conditions):
        self.conditions[experiment] = conditions
        return iter(["op,ms\n"])


def test_conditions_follow_from_the_network(tmp_path):
    wanted = subject("resnet50", 64, True)
    recording = Recording(RECORDINGS / "resnet50_b64")
    recording.folder = tmp_path
    asked = Asked()
    calls = calls_of(wanted.name, wanted.steps)
    lines = list(measure_outcomes(recording, asked, wanted, calls))
    assert len(lines) == 5
    modules = [line.split(" ", 2) for line in asked.conditions["modules"]]
    assert [name for name, *_ in modules] == ["2a.add", "3a.add", "4a.add", "5a.add"]  # those with a shortcut
    first = [[op.split("/")[1] for op in branch.split()] for branch in modules[0][2].split(" , ")]
    assert first == [["2a.reduce", "2a.3x3", "2a.expand"], ["2a.expand"]]  # the shortcut's shape is the expansion's
    known = {call.op for call in calls}
    for line in (*asked.conditions["pairs"], *asked.conditions["residency"]):
        assert {field for field in line.split() if "/" in field} <= known


# ---- traces


def closure(steps_after):
    """For each step all that it waits for, directly or not."""
    found = {}
    for id, after in steps_after:
        found[id] = frozenset(after).union(*(found[other] for other in after))
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_streams_add_no_order_but_among_gradients_of_parameters(name):
    steps = training_iteration(network(name), 1)
    graph = closure((step.id, step.after) for step in steps)
    tails = {}
    kept = []
    for placed in placements(steps):
        tail = tails.get(placed.stream)
        if placed.stream == PARAMETERS:
            assert placed.step.of_parameters
        elif tail is not None:
            assert tail in graph[placed.step.id]
        before = placed.waits if tail is None or placed.stream == PARAMETERS else (*placed.waits, tail)
        kept.append((placed.step.id, before if placed.stream != PARAMETERS else placed.step.after))
        tails[placed.stream] = placed.step.id
    assert closure(kept) == graph  # streams and waits together are the graph, no more and no less


@pytest.mark.release
@pytest.mark.parametrize(("name", "batch", "training"), SHIPPED)
def test_shipped_traces_are_the_recordings_with_the_graphs_dependencies(name, batch, training, tmp_path):
    kind = "training" if training else "forward"
    source = RECORDINGS / f"{name}_b{batch}"
    shipped = ROOT / "traces" / f"{name}_b{batch}_{kind}.json.gz"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    flags = ["--training"] if training else []
    arguments = ["record", name, "--batch", str(batch), *flags, "--algorithms", "fastest", "--out", str(tmp_path)]
    assert main(arguments) == 0
    made = load_trace(tmp_path / shipped.name)
    assert made == load_trace(shipped)
    check_dependencies(made, training_iteration(network(name), batch) if training else forward(network(name), batch))


@pytest.mark.parametrize("name", ["googlenet_b128_training", "googlenet_b16_forward", "googlenet_b1_forward"])
def test_concatenations_are_copies_as_fast_as_the_other_layers(name):
    trace = load_trace(ROOT / "traces" / f"{name}.json.gz")
    copies = [op.kernel for op in trace.operations() if ".concat." in op.id and not isinstance(op, Convolution)]
    copies = [launch for launch in copies if "copy" in launch.name or "ranspose" in launch.name]
    assert copies and all("copy_rows<float4>" in launch.name for launch in copies)
    if name == "googlenet_b128_training":  # at least half of what ReLU moves
        busiest = max(copies, key=lambda launch: launch.duration_us)
        assert 2 * 4 * 4 * busiest.threads_per_block * busiest.blocks / busiest.duration_us / 1e6 > 1.35  # TB/s


def check_dependencies(trace, steps):
    """Everything that a step waits for in the graph ends before its first operation may start."""
    before = {}
    for stream in trace.streams:
        tail = ()
        for operation in stream.operations:
            before[operation.id] = (*operation.depends_on, *tail)
            tail = (operation.id,)
    order = []
    open_ids = dict(before)
    while open_ids:
        free = [id for id, after in open_ids.items() if not any(other in open_ids for other in after)]
        assert free, "a cycle"
        order += [(id, open_ids.pop(id)) for id in free]
    ends = closure(order)
    layers_between = [op for op in trace.operations() if not isinstance(op, Convolution)]
    assert layers_between
    for step in steps:
        assert set(step.after) <= ends[step.id]


def test_the_fastest_algorithm_is_selected_and_the_other_profiled_ones_are_alternatives(tmp_path):
    source = RECORDINGS / "resnet50_b1"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    recording = Recording(tmp_path)
    wanted = subject("resnet50", 1, False)
    first, second, *_ = recording.ranked(calls_of(wanted.name, wanted.steps))[0]
    copied = [{**row, "op": second.op} for row in recording.kernels(first)]
    recording.add_kernels(copied)
    assert main(["record", "resnet50", "--batch", "1", "--algorithms", "fastest", "--out", str(tmp_path)]) == 0
    trace = load_trace(tmp_path / "resnet50_b1_forward.json.gz")
    convolution = next(op for op in trace.operations() if op.id == "conv1/fwd")
    assert convolution.algorithm == f"{first.algorithm}/{first.math}"
    assert [other.algorithm for other in convolution.alternatives] == [f"{second.algorithm}/{second.math}"]
