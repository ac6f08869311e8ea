"""Levers that run the same arithmetic otherwise.

threads, replicas   how many, and where
allocator           memory kept between calls
channels_last       layout of convolutions
clean_up            batch norms folded, dropouts dropped
compile             torch.compile
aotinductor         compiled ahead of time
runtime             another runtime, at the same precision
runtime_options     a runtime's own switches
"""
