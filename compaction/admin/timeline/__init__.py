"""What this app adds to the timeline of a session: runs, and the recoveries of turns."""
