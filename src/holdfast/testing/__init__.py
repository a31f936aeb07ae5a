"""For tests, ours and those of others: fakes, faults, strategies and conformance suites."""
