"""Models and their cuts: model registry, traced graphs, partition points, stages, proof of equality."""
