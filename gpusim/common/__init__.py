"""Helpers for every folder: errors, files, tables, progress, fingerprints."""
