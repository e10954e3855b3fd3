"""What was written, and where it is wrong: files of scenarios, models, traces, traffic and logs."""
