"""What is cut and where: model registry, traced graphs, partition points, stages, proof of equality."""
