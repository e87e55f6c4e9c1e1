"""Policies that share a GPU between kernels: one module a family, behind the interface in `base`."""
