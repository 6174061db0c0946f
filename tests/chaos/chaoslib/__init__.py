"""The parts of tests/chaos/run: plan.py says what befalls whom when, job.py has the hosts, run.py judges."""
