"""What needs a look: its kinds, the list of it, what people set aside, and alerts of it."""
