"""Importers and exporters, one module a format."""
