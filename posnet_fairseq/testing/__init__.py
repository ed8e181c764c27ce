"""Laws that every token mixer must keep, to run against new ones."""
