"""Convolutional networks as graphs of layers: shapes, parameters, work and dependencies."""
