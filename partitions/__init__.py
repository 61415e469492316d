"""Models and their cuts: model registry, traced graphs, partition points, stages, proof of equality."""

if __name__ == "partitions":
    raise ImportError("import it as pareto.partitions")
