"""Files that describe a model as it was published: a Hugging Face ``config.json``, the header of a
GGUF file.
"""
