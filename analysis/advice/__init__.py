"""From what was measured at some networks to what to do in any other."""
