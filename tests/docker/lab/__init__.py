"""Hosts of a job on one machine, and what may happen to them: see hosts.py, and ../README.md."""
