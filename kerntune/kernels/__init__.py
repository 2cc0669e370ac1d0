"""What is known of a kernel without running it."""
