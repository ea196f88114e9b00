"""The arrays behind figures: one module computes one kind; `arrays` defines the kinds, `arrays_file` saves them."""
