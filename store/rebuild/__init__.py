"""What a closed store can do without, made again of its frames, in parts that any process works on by itself."""
