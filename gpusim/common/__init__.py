"""What every folder may use: errors, files, tables, progress, fingerprints."""
