"""ParaDL's oracle: what an iteration of training costs under each way of dividing it between GPUs.

`gpusim.parallel.equations` are its formulas; the other modules give them layers, times, clusters and limits.
"""
