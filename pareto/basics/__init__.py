"""Files that come whole, YAML with line numbers, the terminal."""
