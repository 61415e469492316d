"""`report.html` and `compare.html`: everything that was found, in one file that opens from disk."""
