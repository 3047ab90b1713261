"""Processor time, as coarse as systems count it."""

RESOLVED = 0.05
"""Seconds of processor time that are told apart from none: some systems count them in ticks of up to 10 ms."""
