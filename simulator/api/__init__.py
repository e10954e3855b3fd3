"""What can be called from Python?"""
