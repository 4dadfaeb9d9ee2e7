"""The timeline of a session: what happened to it, from several tables, newest first."""
