"""What runs a stage on a host: PyTorch as it is, or what builds something faster of the same stage."""
