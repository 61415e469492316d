"""How sure a figure is: intervals, outliers, drift, stability."""
