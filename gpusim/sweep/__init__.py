"""Many replays: every point of an experiment computed once, on all cores or a cluster, into one table.

    from gpusim.sweep import run, workers
    from gpusim.sweep.experiment import load_experiment

    swept = run.sweep(load_experiment("experiments/sensitivity.toml"), "sensitivity.csv", *workers.local(jobs=8))

`workers.local(jobs=8)` is something that starts an executor of `concurrent.futures`, which may be any other, and how
many points to hand out at a time. Points that the table holds already are not computed again. However it was
interrupted and run again, and wherever its points were computed, the table that an experiment ends with is the same,
byte for byte.
"""
