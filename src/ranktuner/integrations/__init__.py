"""Thin adapters, one for each training framework."""
