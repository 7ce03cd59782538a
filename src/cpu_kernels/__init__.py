"""Compiled operators for CPUs, in the place of MindSpore's: C++ in `csrc`, built at first use."""
