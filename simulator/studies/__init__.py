"""Which setting pays?"""
