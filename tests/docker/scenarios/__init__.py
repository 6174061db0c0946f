"""What may happen to a job, each written once against lab.hosts, and what must come of it."""
