"""What units take, what follows from that for every split, and what need not be measured so."""
