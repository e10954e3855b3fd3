"""SpecActor (arXiv 2511.16193): servers that draft and servers that verify, decoupled. Its schedule
is restated, its text was not read.
"""
