"""A session's page: meter, strip, fates of messages, forms."""
