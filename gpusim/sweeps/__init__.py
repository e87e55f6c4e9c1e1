"""Many replays: every point of an experiment computed once, on all cores or a cluster, into one table.

    swept = gpusim.sweep("experiments/sensitivity.toml", "sensitivity.csv")
    swept.frame  # one row per point
    gpusim.sweep("experiments/sensitivity.toml", "sensitivity.csv", *gpusim.sweeps.workers.local(jobs=8))

`workers.local(jobs=8)` gives a function that starts an executor of `concurrent.futures`, and the number of points to
hand out at a time. Any other executor works as well. Points that the table holds are not computed again. The final
table has the same bytes wherever its points were computed, and however often the sweep was interrupted.
"""
