"""Which fleet keeps an SLO at the least cost, and how firm is that?"""
