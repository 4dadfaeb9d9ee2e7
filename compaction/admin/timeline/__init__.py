"""What this app adds to the timeline of a session: runs, and the ladders of turns."""
