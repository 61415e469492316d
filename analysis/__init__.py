"""Results to tables, fronts, bounds and figures, from run folders alone.

Modules are imported by name (``from analysis.report import report``), so that the package itself costs
nothing to import.
"""
