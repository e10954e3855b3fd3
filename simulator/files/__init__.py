"""What was written, and where is it wrong?"""
