"""Acceptance answers: which tokens does the target keep?"""
