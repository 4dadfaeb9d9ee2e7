"""The front page: tiles and plots of the daily figures."""
