"""What strategies have in common; none of these files is one."""
