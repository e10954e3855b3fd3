"""In Speculative Streaming one model verifies the last draft and writes the next one in the same
pass.
"""
