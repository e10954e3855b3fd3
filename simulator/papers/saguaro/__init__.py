"""SSD, or Saguaro (arXiv 2603.03251): windows are written ahead for the likeliest outcomes. Its law
was put together from a public summary, its text was not read.
"""
