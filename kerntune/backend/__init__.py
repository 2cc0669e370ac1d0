"""What touches a GPU, a compiler, or stands in for one."""
