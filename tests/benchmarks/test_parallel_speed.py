"""The oracle for a thousand rank counts and all strategies."""

from gpusim.training.networks.zoo import network
from gpusim.training.paradl.cluster import load_cluster
from gpusim.training.paradl.layers import measured_times
from gpusim.training.paradl.oracle import ParadlOracle


def test_a_thousand_rank_counts(benchmark):
    net, cluster = network("resnet50"), load_cluster("h200")
    times = measured_times(net, "h200")

    def projected():
        oracle = ParadlOracle(net, times, cluster)
        return [oracle.project_all(ranks, 2048) for ranks in range(1, 1001)]

    assert len(benchmark.pedantic(projected, rounds=3)) == 1000
