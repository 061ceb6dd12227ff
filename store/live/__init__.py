"""Readers in other processes: the page by which the writer tells them how far it is, and those who follow it."""
