"""A question in one line: its words, what they are read as, and the plan that answers it."""
