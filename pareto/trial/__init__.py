"""One trial: hosts are asked, reports are judged, rows are written."""
