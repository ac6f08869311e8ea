"""Levers that change how much work there is, and in which portions.

batch   a larger batch for throughput, within the latency limit
"""
