"""ParaDL's oracle: its equations in closed form, its limits, bad input, and the study of it."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.rows import lines
from gpusim.cli import main
from gpusim.commands.parallel import MEASURED_BATCHES, MEASURED_RANKS
from gpusim.common.errors import InputError
from gpusim.trace.file import load_trace
from gpusim.training.networks.layers import Addition, ConvolutionLayer, Linear, Pooling, ReLU, Shape
from gpusim.training.networks.network import Builder, Network
from gpusim.training.networks.zoo import NETWORKS, network
from gpusim.training.paradl.cluster import FOLDER, Cluster, cluster_names, load_cluster
from gpusim.training.paradl.divide import WHOLE, Halo, by_channel, by_filter, by_rows
from gpusim.training.paradl.equations import (
    Link,
    Links,
    all_gather_us,
    all_reduce_us,
    channel_us,
    computation_us,
    data_us,
    filter_us,
    memory_bytes,
    pipeline_computation_us,
    pipeline_us,
    send_receive_us,
    spatial_us,
)
from gpusim.training.paradl.layers import LayerTimes, read_times, sizes, traced_times
from gpusim.training.paradl.oracle import STRATEGIES, Impossible, ParadlOracle, Projection, fastest
from gpusim.training.paradl.segments import balancer, cuts

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "experiments" / "paradl"
LINK = Link(10.0, 0.001)
LINKS = Links(LINK, LINK, LINK)


def small() -> Network:
    """Two convolutions, a sum, a pooling and two fully connected layers."""
    net = Builder("small", Shape(4, 8, 8))
    net.add("c1", ConvolutionLayer(8, (3, 3), 1, (1, 1), bias=False))
    net.add("c2", ConvolutionLayer(8, (3, 3), 1, (1, 1), bias=False))
    net.add("sum", Addition(), "c1", "c2")
    net.add("pool", Pooling("max", (2, 2), 2))
    net.add("fc3", Linear(16))
    net.add("r3", ReLU())
    net.add("last", Linear(10))
    return net.network()


def parameters(net: Network) -> int:
    """Learned numbers of all layers."""
    return sum(node.layer.parameters(net.inputs(node)) for node in net.nodes)


def times(net: Network) -> LayerTimes:
    """1 us forward and 2 us back a sample and layer; the update of all parameters 5 us."""
    rows = [(node.name, WHOLE, 1, batch, 1.0 * batch, 2.0 * batch) for node in net.nodes for batch in (1, 64)]
    return LayerTimes("h200", [*rows, ("update", WHOLE, 1, 1, 0.0, 5.0)])


def small_cluster() -> Cluster:
    gpu = load_cluster("h200").gpu
    return Cluster("small", "for tests", gpu, 4, LINKS, Links(*(Link(100.0, 0.01),) * 3))


def oracle(net: Network | None = None) -> ParadlOracle:
    net = net or small()
    return ParadlOracle(net, times(net), small_cluster(), copies=False)


# ---- equations


def test_collectives_are_rings():
    assert all_reduce_us(4, [800.0], LINKS) == pytest.approx(2 * 3 * (10 + 0.2))
    assert all_gather_us(4, [800.0, 400.0], LINKS) == pytest.approx(3 * (20 + 0.3))
    assert send_receive_us([100.0], LINKS) == pytest.approx(10.1)


def test_a_measured_link_is_straight_between_sizes_and_in_proportion_above():
    link = Link(99.0, 99.0, ((10.0, 5.0), (20.0, 7.0)))
    assert [link.us([size]) for size in (1, 10, 15, 20, 40)] == pytest.approx([5, 5, 6, 7, 14])


def test_data_is_an_all_reduce_of_all_gradients():
    assert data_us(2, 100, LINKS) == pytest.approx(2 * (10 + 100 * 4 * 0.001 / 2))
    assert data_us(1, 100, LINKS) == 0


@given(p=st.integers(2, 512), B=st.integers(1, 4096), y=st.lists(st.integers(1, 10**7), min_size=1, max_size=9))
def test_filter_is_the_reports_three_rings_where_inputs_are_the_outputs_before(p, B, y):
    report = 3 * (p - 1) * sum(10 + B * elements * 4 * 0.001 / p for elements in y)
    assert filter_us(p, B, y, y, LINKS) == pytest.approx(report)
    assert channel_us(p, B, y, y, LINKS) == pytest.approx(report)


def test_spatial_exchanges_halos_twice_and_gathers_at_the_end():
    halo = 2 * (2 * 10 + 8 * 6 * 4 * 0.001)
    assert spatial_us(2, 8, 50, [6], [20], LINKS) == pytest.approx(
        data_us(2, 50, LINKS) + halo + 10 + 8 * 20 * 4 * 0.001 / 2
    )


def test_pipeline_fills_and_drains():
    assert pipeline_computation_us(4, 4, 3.0, 5.0, 1.0) == 7 * 8 + 1
    assert pipeline_us(4, 4, 8, 50, LINKS) == pytest.approx(2 * 6 * (10 + 2 * 50 * 4 * 0.001))


def test_memory_holds_values_and_gradients():
    assert memory_bytes(100, 7) == 8 * 107
    assert memory_bytes(100, 7, 0.5) == 8 * 57
    assert computation_us(1.0, 2.0, 4.0) == 7.0


# ---- what is divided


def test_layers_that_are_divided():
    net = small()
    assert by_filter(net) == {"c1", "c2", "fc3"}
    assert by_channel(net) == {"c2", "fc3"}
    assert by_rows(net, 4) == {"c1": Halo(1, 1), "c2": Halo(1, 1), "sum": Halo(0, 0), "pool": Halo(0, 0)}
    assert set(by_rows(net, 8)) == {"c1", "c2", "sum"}  # 4 rows after the pooling
    assert by_rows(net, 3) == {}


def test_cuts_are_where_one_tensor_crosses():
    assert cuts(small()) == [1, 3, 4, 5, 6]  # not between c1 and the sum that reads it
    assert balancer([1, 1, 1, 1, 4, 1, 1], [1, 3, 4, 5, 6])(2) == [4]
    assert balancer([1, 1, 1, 1, 4, 1, 1], [1, 3, 4, 5, 6])(7) is None


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_sizes_and_cuts(name):
    net = network(name)
    assert sum(size.w for size in sizes(net).values()) == parameters(net)
    assert cuts(net)


# ---- projections in closed form


def test_data_parallelism_of_a_small_network():
    found = oracle().project("data", 4, 32)
    W = parameters(small())
    assert found.computation_us == pytest.approx(8 * 7 * 3 + 5)
    assert found.communication_us == pytest.approx(data_us(4, W, LINKS))
    elements = sum(size.x + size.y for size in sizes(small()).values())
    assert found.memory_bytes == pytest.approx(8 * (8 * elements + W))


def test_filters_are_divided_and_other_layers_are_not():
    found = oracle().project("filter", 2, 8)
    divided = 3 * 8 * 3 / 2
    W = sizes(small())
    local = sum(W[name].w for name in ("c1", "c2", "fc3")) / 2 + W["last"].w
    assert found.computation_us == pytest.approx(divided + 4 * 8 * 3 + 5 * local / parameters(small()))
    y, x = [W[n].y for n in ("c1", "c2", "fc3")], [W[n].x for n in ("c2", "fc3")]
    assert found.communication_us == pytest.approx(filter_us(2, 8, y, x, LINKS))


def test_a_hybrid_is_groups_of_a_nodes_ranks():
    found = oracle().project("data+filter", 8, 16)
    assert (found.width, found.ranks) == (4, 8)
    within = filter_us(4, 8, [512, 512, 16], [512, 128], LINKS)
    local = (sum(sizes(small())[name].w for name in ("c1", "c2", "fc3"))) / 4 + 170
    assert found.communication_us == pytest.approx(within + data_us(2, local, small_cluster().network))


def test_a_pipeline_is_as_slow_as_its_slowest_segment():
    found = oracle().project("pipeline", 2, 8)
    assert found.computation_us == pytest.approx(5 * (4 * 2 + 4 * 4) + 5 * max(864, 2234) / parameters(small()), abs=1)


@given(ranks=st.sampled_from([1, 2, 4, 8, 16]), batch=st.integers(32, 512))
def test_more_ranks_never_compute_longer_by_data_parallelism(ranks, batch):
    fewer, more = (oracle().project("data", p, batch).computation_us for p in (ranks, 2 * ranks))
    assert more <= fewer


def test_the_best_is_the_fastest_that_fits():
    found = [
        Projection("data", 2, 1, 8, 10, 0, 100),
        Projection("filter", 2, 2, 8, 20, 0, 50),
        Impossible(None, "spatial", "no"),
    ]
    assert fastest(found, 100) is found[0]
    assert fastest(found, 60) is found[1]
    assert fastest(found, 10) is None


# ---- limits and bad input


@pytest.mark.parametrize(
    ("strategy", "ranks", "said"),
    [
        ("filter", 16, "16 ranks cannot divide the 8 filters of layer c1"),
        ("channel", 16, "16 ranks cannot divide the 8 channels of layer c2"),
        ("spatial", 16, "16 ranks cannot divide the 8 rows of layer c1"),
        ("data", 64, "64 groups of ranks for 32 samples"),
        ("pipeline", 7, "7 ranks for 6 segments of layers"),
        ("data+filter", 2, "2 ranks are no groups of ranks of a node"),
        ("filter", 1, "1 rank divides nothing"),
    ],
)
def test_more_ranks_than_a_strategy_can_divide(strategy, ranks, said):
    with pytest.raises(Impossible, match=said):
        oracle().project(strategy, ranks, 32)


def test_an_unknown_strategy():
    with pytest.raises(InputError, match=r"unknown strategy 'dta'.*did you mean data"):
        oracle().project("dta", 2, 8)


def test_a_network_without_sizes():
    net = Network("empty", Shape(3, 0, 0), small().nodes[3:3])
    with pytest.raises(InputError, match="empty: has no sizes"):
        sizes(net)
    flat = Builder("flat", Shape(0, 8, 8))
    flat.add("r", ReLU())
    with pytest.raises(InputError, match="flat: layer r: has no sizes"):
        sizes(flat.network())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gb_per_s = 50", "gb_per_s = -50", "gb_per_s"),
        ("alpha_us = 9", "alpha_us = -9", "alpha_us"),
        ("gpus_per_node = 4", "gpus_per_node = 0", "gpus_per_node"),
        ("[network]\nany", "[network]\nall_reduce", "network.all_gather: missing"),
        ("gb_per_s = 50", "gb_per_s = 50, among = [{ ranks = 2, measured = [[1, 1]] }]", "ranks"),
        ("gb_per_s = 50", "gb_per_s = 50, among = [{ ranks = 4, measured = [[2, 1], [1, 1]] }]", "sizes must ascend"),
        ('gpu = "v100"', 'gpu = "v101"', "v101"),
    ],
)
def test_a_cluster_file_that_is_wrong(tmp_path, capsys, old, new, said):
    text = (FOLDER / "abci.toml").read_text(encoding="utf-8")
    changed = tmp_path / "mine.toml"
    changed.write_text(text.replace(old, new), encoding="utf-8")
    assert changed.read_text(encoding="utf-8") != text
    assert main(["parallel", "resnet50", "--ranks", "2", "--cluster", str(changed)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "mine.toml" in line and said in line


@pytest.mark.parametrize("gamma", ["0", "1.5", "1e308", "nan", "1_0"])
def test_gamma_is_a_share(capsys, gamma):
    with pytest.raises(SystemExit) as refused:
        main(["parallel", "resnet50", "--ranks", "8", "--gamma", gamma])
    assert refused.value.code == 2 and f"is '{gamma}'; expected a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resnet50", "--ranks", "128", "--strategy", "filter"], "cannot divide the 64 filters of layer conv1"),
        (["resnet51", "--ranks", "2"], "unknown network"),
        (["googlenet", "--ranks", "2"], "no times of googlenet"),
        (["resnet50", "--ranks", "2", "--cluster", "h201"], "did you mean h200"),
        (
            ["resnet50", "--ranks", "2", "--layers", "traces/inception_3a.json.gz"],
            "traces/inception_3a.json.gz: trace inception_3a: operation 3a.1x1: is of no layer of resnet50",
        ),
    ],
)
def test_bad_arguments_are_one_line(monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(ROOT)
    assert main(["parallel", *arguments]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and said in line


def test_the_gpu_file_of_a_cluster_lies_beside_it(tmp_path):
    text = (FOLDER / "abci.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace('gpu = "v100"', 'gpu = "own.toml"'), encoding="utf-8")
    (tmp_path / "own.toml").write_bytes((ROOT / "gpus" / "v100.toml").read_bytes())
    assert load_cluster(tmp_path / "mine.toml").gpu.name == "own"


def test_a_node_of_one_gpu_has_no_groups():
    alone = replace(small_cluster(), gpus_per_node=1)
    with pytest.raises(Impossible, match="which has 1 GPU; expected nodes of 2 GPUs or more"):
        ParadlOracle(small(), oracle().times, alone).project("data+filter", 8, 32)


def test_a_table_of_times_that_is_wrong(tmp_path):
    path = tmp_path / "times.csv"
    header = "network,layer,divided,parts,batch,forward_us,backward_us\n"
    path.write_text(header + "small,c1,whole,1,8,-1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: forward_us is -1"):
        read_times(path, small(), "h200")
    for row, said in (
        ("c1,whole,1,8.9,1,2", "line 2: batch is 8.9; expected a whole number of at least 1"),
        ("c1,whole,1_0,8,1,2", "line 2: parts is 1_0"),
        ("c1,whole,1,8,1_0,2", "line 2: forward_us is 1_0; expected a number from 0"),
        ("c1,whole,1,8,1e200,2", "line 2: forward_us is 1e200"),
        ("c1,whole,1,8,0,0", "small: takes no time at all"),
        ("c1,whole,1,8,1,2\nsmall,c1,whole,1,8,3,4", "line 3: is another row of the same part"),
    ):
        path.write_text(f"{header}small,{row}\n", encoding="utf-8")
        with pytest.raises(InputError) as raised:
            read_times(path, small(), "h200")
        assert said in str(raised.value)
    path.write_text(header + "small,c1,whole,1,8,1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"layer .* has no times"):
        ParadlOracle(small(), read_times(path, small(), "h200"), small_cluster()).project("data", 2, 8)


# ---- times


def test_times_of_a_recorded_iteration():
    trace = load_trace(ROOT / "traces" / "resnet50_b64_training.json.gz")
    net = network("resnet50")
    operation_us = {operation.id: 2.0 for operation in trace.operations()}
    found = traced_times(net, trace, operation_us, "h200")
    forward, backward = found.curve([node.name for node in net.nodes], WHOLE, 1).at(64)
    assert forward + backward == pytest.approx(2.0 * len(operation_us))
    assert found.curve(["conv1"], WHOLE, 1).at(64) == (2.0, 2.0)  # no gradient of the input


def test_measured_parts_are_taken_and_divided_further():
    rows = [("c1", WHOLE, 1, 8, 10.0, 20.0), ("c1", "filter", 2, 8, 6.0, 12.0)]
    found = LayerTimes("h200", rows)
    assert found.curve(["c1"], "filter", 2).at(8) == (6.0, 12.0)
    assert found.curve(["c1"], "filter", 4).at(8) == (3.0, 6.0)
    assert found.curve(["c1"], "channel", 2).at(16) == (10.0, 20.0)  # not measured: t/p, twice the samples


# ---- what ships


@pytest.mark.parametrize("name", cluster_names())
def test_clusters_that_ship(name):
    cluster = load_cluster(name)
    assert cluster.links(cluster.gpus_per_node) is cluster.node
    assert cluster.links(cluster.gpus_per_node + 1) is cluster.network


def test_a_ring_takes_what_was_measured_among_the_most_ranks_that_are_no_more():
    measured = Link(1.0, 1.0, ((1.0, 5.0), (2.0, 6.0)), ((4, ((1.0, 3.0), (2.0, 4.0))),))
    links = Links(measured, measured, measured)
    assert all_reduce_us(2, [2.0], links) == 2 * 5.0
    assert all_reduce_us(3, [6.0], links) == 4 * 6.0
    assert all_reduce_us(4, [6.0], links) == 6 * 3.5
    assert all_gather_us(8, [8.0], links) == 7 * 3.0


def test_what_counts_as_measured_is_what_was() -> None:
    rows = lines(STUDY / "accuracy.csv")
    batches = {name: [int(row["batch"]) for row in rows if row["network"] == name] for name in MEASURED_BATCHES}
    assert {row["network"] for row in rows} == set(MEASURED_BATCHES)
    assert {name: (min(of), max(of)) for name, of in batches.items()} == MEASURED_BATCHES
    assert {int(row["ranks"]) for row in rows} == set(MEASURED_RANKS)


def test_the_command(capsys):
    assert main(["parallel", "vgg16", "--ranks", "4", "--batch", "64", "--json"]) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert [each["strategy"] for each in point["strategies"]] == list(STRATEGIES)
    assert point["best"] == "data"
    assert main(["parallel", "vgg16", "--ranks", "4", "--batch", "64"]) == 0
    said = capsys.readouterr().out
    assert "best: data" in said and "not validated" not in said
    assert main(["parallel", "vgg16", "--ranks", "4", "--batch", "2"]) == 0
    assert "this time is not validated" in capsys.readouterr().out, "of so small batches none was measured"
    assert main(["parallel", "vgg16", "--ranks", "6", "--batch", "64", "--scaling", "strong"]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:5].strip().isdigit()]
    assert rows == ["1", "2", "4", "6"]
    assert (
        main(["parallel", "alexnet", "--ranks", "8", "--batch", "64", "--scaling", "weak", "--strategy", "spatial"])
        == 0
    )
    assert "weak scaling" in capsys.readouterr().out


# ---- the study


def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY))
    import importlib

    monkeypatch.delitem(__import__("sys").modules, "run", raising=False)
    return importlib.import_module("run")


def table(name: str) -> list[tuple[str, ...]]:
    with (STUDY / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def test_the_studys_tables_are_what_it_makes_now(monkeypatch):
    run = study(monkeypatch)
    oracles = {name: run.oracle(name) for name in run.NETWORKS}

    def texts(rows):
        return [tuple(str(value) for value in row) for row in rows]

    assert texts(run.paper()) == table("paper")
    assert texts(run.accuracy(oracles)) == table("accuracy")
    assert texts(run.best(oracles)) == table("best")
    assert texts(run.without()) == table("without")
    assert texts(run.scaling(oracles)) == table("scaling")


def test_the_study_reaches_what_it_says():
    assert all(abs(float(row[-1])) < 0.001 for row in table("paper"))
    for ranks, least in (("2", 97), ("4", 96)):
        accuracies = [float(row[-1]) for row in table("accuracy") if row[1] == ranks]
        assert sum(accuracies) / len(accuracies) >= least
    cases = [row[-1] for row in table("best")]
    assert cases.count("yes") >= 0.9 * len(cases)


def test_collectives_of_the_study_carry_all_gradients(monkeypatch):
    run = study(monkeypatch)
    recorded = load_trace(ROOT / "traces" / "resnet50_b64_training.json.gz")
    trace = run.with_collectives(recorded, 8)
    compute, collectives = trace.streams
    assert len(compute.operations) == len(list(recorded.operations()))
    sent = sum(op.kernel.mix.dram_read_bytes * op.kernel.blocks for op in collectives.operations)
    assert sent == pytest.approx(4 * parameters(network("resnet50")))
    assert all(op.kernel.blocks == 8 for op in collectives.operations)


@pytest.mark.parametrize("ranks", [2, 4])
def test_divided_training_gives_what_one_rank_gives(ranks):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    command = [sys.executable, str(Path(__file__).with_name("divided_training.py")), str(ranks)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    found = json.loads(ran.stdout)
    assert set(found) >= {"data", "spatial", "filter", "channel", "pipeline", "overlapped"}
    assert set(found) >= {"data+filter", "data+spatial"} or ranks < 4
    assert max(found.values()) < 1e-5
