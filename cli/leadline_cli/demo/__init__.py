"""`leadline demo`: a cluster loses its leaders under load, and not one acknowledged line."""
