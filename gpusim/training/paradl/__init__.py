"""ParaDL's oracle: the cost of a training iteration under each parallelisation strategy.

`gpusim.training.paradl.equations` are its formulas; the other modules give them layers, times, clusters and limits.
"""
