"""What is asked for, and when: arrivals, lengths, recorded requests and busier ones."""
