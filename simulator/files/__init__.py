"""Files answer: what was written, and where is it wrong?"""
