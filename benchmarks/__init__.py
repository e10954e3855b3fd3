"""What is measured and made beside the package: benchmarks, kernels of a card, and the family of
the shipped traces.
"""
