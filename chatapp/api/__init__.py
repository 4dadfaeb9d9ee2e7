"""The REST API of conversations, under /api/v1/."""
