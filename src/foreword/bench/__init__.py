"""Measurements of the engine: workloads, statistics, reports."""
