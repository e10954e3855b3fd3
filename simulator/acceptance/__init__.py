"""Which tokens does the target keep?"""
