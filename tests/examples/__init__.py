"""The examples run, and print what their pages say."""
