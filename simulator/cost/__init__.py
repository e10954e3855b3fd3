"""How long does a pass take?"""
