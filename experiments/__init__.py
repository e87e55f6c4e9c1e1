"""Studies: a folder for each, whose `run.py` makes its tables, its page and its pictures (`experiments.study`)."""
