"""The two ends of `bench transport`: ways of moving a tensor and getting four bytes back."""
