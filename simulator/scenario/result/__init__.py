"""The result of one scenario: what it holds, and how it looks as plain data."""
