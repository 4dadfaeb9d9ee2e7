"""Profiles: the form, its live check, versions, where they are used."""
