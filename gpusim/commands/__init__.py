"""One module a command of the command line; `gpusim.cli` lists them."""
