"""A comparison as one page that a browser opens: what is on it (`content.py`) and how it looks (`page.*`)."""
