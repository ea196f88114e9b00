"""Numbers behind figures: a module computes one kind of them; `arrays` says what they are and keeps them in files."""
