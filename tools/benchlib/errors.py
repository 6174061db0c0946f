"""The one error that tools/bench reports to its user."""


class BenchError(Exception):
    """A sentence that names the culprit and says what to do."""
