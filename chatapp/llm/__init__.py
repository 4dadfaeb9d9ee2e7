"""Everything that talks to a language model, or has to know how one counts."""
