"""Cost answers: how long does a pass take?"""
