"""Questions that take several replays: any policy, comparisons, oracles, workloads, validation, benchmarks."""
