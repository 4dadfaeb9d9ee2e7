"""What `manage.py demo` does, step by step; the command only shows it."""
