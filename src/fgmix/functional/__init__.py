"""Stateless tensor functions shared by two or more methods; independent of the algorithms."""
