"""Who is in the batch, from arrival to the last token."""
