"""The times of units, what follows for every split, and what need not be measured so."""
