"""The parts of tools/churn: plan.py says what happens when, job.py does it to processes, verdict.py judges."""
