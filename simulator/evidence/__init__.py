"""How far off is it?"""
