"""The REST API of compaction, under /api/v1/."""
