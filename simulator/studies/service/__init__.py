"""What would a change do to a service that is running?"""
