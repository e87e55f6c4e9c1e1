"""One module per command; `gpusim.cli` lists them."""
