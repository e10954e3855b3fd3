"""PEARL (arXiv 2408.11850): the draft writes a window while the target verifies the one before."""
