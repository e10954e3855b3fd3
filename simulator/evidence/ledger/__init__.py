"""A ledger of errors: measured rows beside what was said of them without looking."""
